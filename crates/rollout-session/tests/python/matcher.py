"""Whether two messages are the same, by Python's own equality: the peer of tests/it/matcher.rs.

Reads lines of JSON [stored, replayed] from standard input, both as texts; writes one line per pair: three digits, 1 where they
match strictly, loosely, by role and content.
"""

import decimal
import json
import sys


def nothing(value):
    return value is None or value == "" or value == []


def flat(content):
    is_part = lambda part: isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
    if isinstance(content, list) and all(map(is_part, content)):
        return " ".join(part["text"] for part in content)
    return content


def part_equal(left, right):
    return left == right or (nothing(left) and nothing(right))


def same_part(left, right, key):
    left, right = left.get(key), right.get(key)
    if key == "content":
        left, right = flat(left), flat(right)
    return part_equal(left, right)


def without_index(call):
    return {key: value for key, value in call.items() if key != "index"} if isinstance(call, dict) else call


def strict_calls(left, right):
    if isinstance(left, list):
        left = [without_index(call) for call in left]
    if isinstance(right, list):
        right = [without_index(call) for call in right]
    return part_equal(left, right)


class Refused(Exception):
    pass


def unique(pairs):
    result = dict(pairs)
    if len(result) != len(pairs):
        raise Refused
    return result


def refuse(_):
    raise Refused


class Number:
    def __init__(self, text):
        self.value = decimal.Decimal(text)


def parsed(value):
    """A value that came as such: its floats as their shortest text."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        number = Number(repr(value))
        if not number.value.is_finite():
            raise Refused
        return number
    if isinstance(value, list):
        return [parsed(item) for item in value]
    return {key: parsed(item) for key, item in value.items()}


def arguments(value):
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        value = json.loads(
            value, object_pairs_hook=unique, parse_constant=refuse, parse_int=Number, parse_float=Number
        )
    elif isinstance(value, dict):
        value = parsed(value)
    if not isinstance(value, dict):
        raise Refused
    return value


def typed_equal(left, right, numbers):
    if isinstance(left, Number) and isinstance(right, Number):
        return left.value == right.value
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(typed_equal(a, b, numbers) for a, b in zip(left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(typed_equal(left[key], right[key], numbers) for key in left)
    return left == right


def same_arguments(left, right):
    try:
        left_object, right_object = arguments(left), arguments(right)
    except (Refused, ValueError, decimal.InvalidOperation):
        return typed_equal(left, right, False)
    return typed_equal(left_object, right_object, True)


def same_call(left, right):
    left, right = without_index(left), without_index(right)
    if not (isinstance(left, dict) and isinstance(right, dict)):
        return left == right
    if left.keys() != right.keys():
        return False
    for key in left:
        a, b = left[key], right[key]
        if key == "function" and isinstance(a, dict) and isinstance(b, dict):
            if a.keys() != b.keys():
                return False
            for name in a:
                same = same_arguments(a[name], b[name]) if name == "arguments" else a[name] == b[name]
                if not same:
                    return False
        elif a != b:
            return False
    return True


def loose_calls(left, right):
    if not (isinstance(left, list) and isinstance(right, list)) or len(left) != len(right):
        return False
    return all(map(same_call, left, right))


def compare(stored, replayed):
    content_only = same_part(stored, replayed, "role") and same_part(stored, replayed, "content")
    spoken = content_only and same_part(stored, replayed, "reasoning_content")
    left, right = stored.get("tool_calls"), replayed.get("tool_calls")
    strict = spoken and strict_calls(left, right)
    return strict, strict or (spoken and loose_calls(left, right)), content_only


for line in sys.stdin:
    stored, replayed = map(json.loads, json.loads(line))
    print("".join(str(int(matches)) for matches in compare(stored, replayed)))
