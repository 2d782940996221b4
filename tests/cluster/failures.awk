# What a test program says about its failures: of each the first lines, which have the panic and its message, and the list of names.
# A log that is cut in the middle keeps its end, so run.sh prints this last. Without failures, where a run was cut off: its last lines.
# usage: awk -f failures.awk OUTPUT      at most 60 lines
BEGIN { of_one = 20; of_all = 40; most = 60 }
/^---- .* stdout ----$/ { inside = "test"; lines = 0 }
/^failures:$/ && inside { inside = "names" }
/^test result: / { if (inside) say($0, most); inside = "" }
inside == "names" && NF { say($0, most - 1) }
inside == "test" && NF && lines++ < of_one { say($0, of_all) }
{ last[NR % 10] = $0 }
END {
  if (said) exit
  for (line = NR - 9; line <= NR; line++) if (line > 0) print last[line % 10]
}
function say(text, limit) { if (said < limit) { said++; print substr(text, 1, 400) } }
