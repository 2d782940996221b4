//! Hand-made pairs of a label and an answer. The verdicts are those of the Python graders; where ours differ, the test says so.

use super::*;
use crate::dataset::{Cursor, Dataset, DatasetConfig, LabelRule, Rules, Source};
use proptest::prelude::*;

fn equal(label: &str, answer: &str) -> bool {
    let expected = expected_answer(label).expect("a usable label");
    is_correct(&format!("So the answer is \\boxed{{{answer}}}."), expected)
}

fn all_equal(answers: &[&str]) {
    for label in answers {
        for answer in answers {
            assert!(equal(label, answer), "label `{label}`, answer `{answer}`");
        }
    }
}

fn wrong(label: &str, answers: &[&str]) {
    for answer in answers {
        assert!(!equal(label, answer), "label `{label}`, answer `{answer}`");
    }
}

#[test]
fn a_whole_number_has_many_spellings() {
    all_equal(&[
        "42",
        "42.0",
        "042",
        "+42",
        "42.",
        "4.2e1",
        r"42\%",
        "$42$",
        r"\$42",
        "42 cm",
        "42 miles",
        r"42^\circ",
        r"\text{42}",
        r"42\text{ cm}",
        r"42\ \text{years}",
        "{42}",
        " 42 ",
        "42 degrees",
        "41.99999999",
    ]);
    all_equal(&["1000", "1,000", "1e3", r"1,\!000", r"\$1,000"]);
    all_equal(&["3000000", "3,000,000", "3e6"]);
    all_equal(&["3*10^6", "3 million", r"3\times10^6", r"3\cdot 10^{6}"]);
    assert!(equal("42", r"42^{\circ}") && !equal("42.0", r"42^{\circ}"));
    assert!(equal("x=42", "42") && equal("42", "x = 42"));
}

#[test]
fn a_whole_number_is_no_expression() {
    wrong(
        "42",
        &[
            "84/2",
            r"\frac{84}{2}",
            "6*7",
            r"6\cdot7",
            "(40+2)",
            "42.00001",
            "-42",
            "forty-two",
            "42,",
            "",
        ],
    );
    wrong("3000000", &["3 million", r"3\cdot10^6"]);
    assert!(
        equal("42", "(42)"),
        "brackets around one number are a tuple of one"
    );
}

#[test]
fn fractions_and_decimals() {
    all_equal(&[
        "1/2",
        r"\frac{1}{2}",
        r"\frac12",
        r"\dfrac{1}{2}",
        r"\tfrac12",
        "0.5",
        ".5",
        "1 / 2",
        r"\frac1{2}",
    ]);
    assert!(
        equal("0.50", "1/2")
            && equal("1/4", "0.25")
            && equal("1/10", "0.1")
            && equal("10^-1", "1/10")
    );
    wrong(
        "1/2",
        &["2/4", r"\frac{2}{4}", r"50\%", "-1/2", "0.51", "1/0"],
    );
    wrong("1/3", &["0.333", "0.3333333333"]);
    assert!(equal("-1/2", r"-\frac{1}{2}") && equal("-0.5", r"\frac{-1}{2}"));
}

#[test]
fn mixed_numbers() {
    all_equal(&["1 1/2", r"1\frac{1}{2}", r"1\frac12", "1.5", "1+1/2"]);
    assert!(equal("3/2", "1 1/2") && equal("1.5", r"\frac{3}{2}"));
}

#[test]
fn tuples_and_intervals() {
    all_equal(&["(1,2)", "(1, 2)", r"\left(1,2\right)", "(1.0,2.0)"]);
    all_equal(&[
        r"(0.5,3)",
        r"(\frac12,3)",
        r"\left( \frac{1}{2}, 3 \right)",
        "(1/2,3)",
    ]);
    all_equal(&[r"(0,\infty)", r"(0, \infty)", "(0,inf)"]);
    all_equal(&["1,2", "1, 2", "1 and 2", "1 or 2"]);
    wrong(
        "(1,2)",
        &["[1,2]", "(1,2]", "(2,1)", "(1,2,3)", "(2/2,2)", "1,2", "12"],
    );
    wrong("(1/2,3)", &["(2/4,3)"]);
}

#[test]
fn words() {
    all_equal(&[
        "yes",
        "Yes",
        r"\text{yes}",
        r"\text{Yes}",
        r"\textbf{yes}",
        r"\mathrm{YES}",
    ]);
    all_equal(&["(A)", r"\text{(A)}", "(a)"]);
    wrong("yes", &["no", "yes!", ""]);
}

#[test]
fn powers() {
    assert!(equal("2.5*10^3+1/2", "2500.5"));
    wrong("1024", &["2^10", "2^{10}"]);
    wrong("2^10", &["1024"]);
    wrong("9^9^9", &["1"]);
}

#[test]
fn what_sympy_would_find_is_left_out() {
    for (label, answer) in [
        ("x+1", "1+x"),
        (r"2\sqrt{3}", r"\sqrt{12}"),
        (r"2\sqrt3", "2*sqrt(3)"),
        (r"\frac{1}{\sqrt{3}}", r"\frac{\sqrt{3}}{3}"),
        (r"2\pi", r"\pi\cdot 2"),
    ] {
        assert!(
            !equal(label, answer),
            "label `{label}`, answer `{answer}`: found equal now, so change the module docs"
        );
    }
    all_equal(&[r"2\sqrt{3}", r"2\sqrt3", r"2 \sqrt{3}", "2sqrt(3)"]);
    all_equal(&[r"2\pi", r"2 \pi"]);
}

#[test]
fn better_than_the_original() {
    assert!(
        equal(r"-1\frac{1}{2}", "-1.5")
            && equal("-3/2", "-1 1/2")
            && !equal(r"-1\frac{1}{2}", "-0.5")
    );
    assert!(equal("0", "0") && equal("0", "0.0"));
    assert!(equal("1,234,567,890", "1234567890"));
    assert!(equal(r"\frac{x+1}{2}", "(x+1)/2"));
    assert!(
        equal(&"7".repeat(60), &"7".repeat(60))
            && !equal(&"7".repeat(60), &format!("{}8", "7".repeat(59)))
    );
}

#[test]
fn the_response_needs_a_box_and_the_label_may_have_one() {
    assert!(equal(r"The sum is \boxed{7}", "7"));
    assert!(is_correct(r"\boxed{6}? No, \boxed{7}", "7"));
    assert!(!is_correct("7", "7"));
    assert!(!is_correct("", "7"));
    assert!(!is_correct(r"\boxed{7", "7"));
}

#[test]
fn a_label_that_nothing_can_equal_is_an_error() {
    assert_eq!(expected_answer("  "), Err("a text that is not blank"));
    assert_eq!(
        expected_answer(r"\boxed{}"),
        Err("a text that is not blank")
    );
    assert_eq!(
        expected_answer(r"\boxed{7"),
        Err(r"an answer: its \boxed does not close")
    );
}

/// The data set of the examples: each label is what its expression says, and the expression is made of the problem's numbers.
#[test]
fn the_labels_of_the_examples_are_right() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/data/word-problems.jsonl"
    );
    let config = DatasetConfig {
        source: Source::File(file.into()),
        rules: Rules {
            label: LabelRule::TextOrNumber,
            require_messages: true,
            ..Rules::default()
        },
        slice: None,
        shuffle_seed: None,
        samples_per_prompt: 1,
    };
    let dataset = Dataset::open(&config).expect("the data set");
    let numbers = regex::Regex::new(r"[0-9]+(\.[0-9]+)?").expect("a pattern");
    let mut cursor = Cursor::default();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..dataset.rows() {
        let row = dataset.next_group(&mut cursor).expect("a row");
        let (id, expression) = (
            &row.metadata["id"],
            row.metadata["expression"].as_str().expect("an expression"),
        );
        let problem = row.prompt[0]["content"].as_str().expect("a problem");
        let label = row.label.as_str().expect("a label");
        let value = expression::evaluate(expression);
        assert!(
            value.is_some() && value == expression::evaluate(label),
            "{id}: {expression} is not {label}"
        );
        assert!(equal(label, label), "{id}");
        let given: Vec<_> = numbers
            .find_iter(problem)
            .map(|found| found.as_str())
            .collect();
        for number in numbers.find_iter(expression).map(|found| found.as_str()) {
            let percent = number == "100" && problem.contains('%');
            assert!(
                given.contains(&number) || percent,
                "{id}: {number} is not in the problem"
            );
        }
        assert!(problem.ends_with(r"Give the answer in \boxed{}."), "{id}");
        assert!(
            seen.insert(id.to_string()) && seen.insert(problem.to_owned()),
            "{id} twice"
        );
    }
    assert_eq!(dataset.rows(), 64);
}

#[test]
fn broken_answers_are_only_wrong() {
    let broken = [
        r"\frac",
        r"\frac1",
        r"\sqrt",
        r"\",
        r"\text{ a}\text{ b}",
        r"\text{}",
        "a=b=c",
        "=3",
        "$",
        "1/",
        "(",
        "()",
        "(,)",
        ",",
        "-",
        "--1",
        "+",
        "^",
        "^2",
        "2^",
        "{",
        "}",
    ];
    for label in ["42", "1/2", "(1,2)", "yes"] {
        for answer in broken {
            assert!(
                !equivalent(label, answer),
                "label `{label}`, answer `{answer}`"
            );
        }
    }
    for answer in broken {
        assert!(equivalent(answer, answer), "`{answer}` is itself");
    }
}

#[test]
fn long_answers_are_bounded_work() {
    let pathological = [
        "9^".repeat(2000),
        "(".repeat(4000),
        r"\frac".repeat(800),
        "1,234".repeat(800),
        "1 ".repeat(2000),
        r"{\sqrt{".repeat(500),
        "9".repeat(4000),
        format!("1e{}", "9".repeat(500)),
        "7".repeat(1_000_000),
    ];
    for answer in &pathological {
        assert!(!equivalent("42", answer));
        assert!(equivalent(answer, answer));
    }
}

proptest! {
    #[test]
    fn every_answer_equals_itself(answer in r"[-+*/^(){}\[\],.0-9a-z \\$%=]{0,60}") {
        prop_assert!(equivalent(&answer, &answer));
    }

    #[test]
    fn no_answer_makes_it_panic(label in any::<String>(), answer in any::<String>()) {
        let _ = expected_answer(&label).map(|expected| is_correct(&format!("\\boxed{{{answer}}}"), expected));
    }

    #[test]
    fn a_number_equals_its_other_spellings(whole in -99_999_i64..99_999, hundredths in 1_u8..100) {
        let decimal = format!("{whole}.{hundredths:02}");
        let sign = if whole < 0 { "-" } else { "" };
        let numerator = whole.unsigned_abs() * 100 + u64::from(hundredths);
        let fraction = format!("{sign}\\frac{{{numerator}}}{{100}}");
        prop_assume!(whole != 0);
        prop_assert!(equal(&decimal, &fraction), "{} {}", decimal, fraction);
        let longer = format!("{decimal}0");
        prop_assert!(equal(&fraction, &longer));
        let other = format!("{sign}{}/100", numerator + 1);
        prop_assert!(!equal(&decimal, &other));
    }
}
