"""Writes PostgreSQL 15's answers to a file of statements: expected.py FILE.sql DATABASE, with psql's environment set.

Statements end with a semicolon at the end of a line. CREATE TABLE has no answer. An answer is a line `@@`, a line for each row
(columns separated by `|`), and `count N` for a change, or `error SQLSTATE: message / detail`.
"""
import re
import subprocess
import sys

path, database = sys.argv[1:]
text = open(path).read()
statements = [s.strip() for s in text.split(";\n") if s.strip()]
script = ["\\set VERBOSITY verbose", "\\pset null ''"]
for statement in statements:
    script += ["\\echo @@", statement + ";"]
run = subprocess.run(["psql", "-X", "-A", "-t", "-d", database], input="\n".join(script), text=True,
                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
answers = run.stdout.split("@@\n")[1:]
assert len(answers) == len(statements), (len(answers), len(statements))
with open(path.replace(".sql", ".expected"), "w") as out:
    for statement, answer in zip(statements, answers):
        body = "\n".join(line for line in statement.splitlines() if not line.startswith("--"))
        if body.startswith("CREATE TABLE"):
            assert answer == "CREATE TABLE\n", answer
            continue
        lines, error = [], None
        for line in answer.splitlines():
            tag = re.fullmatch(r"(INSERT 0|UPDATE|DELETE|MERGE) (\d+)", line)
            if tag:
                lines.append(f"count {tag[2]}")
            elif found := re.fullmatch(r"ERROR:  (\w{5}): (.*)", line):
                error = f"error {found[1]}: {found[2]}"
            elif error and line.startswith("DETAIL:  "):
                error += " / " + line[len("DETAIL:  "):]
            elif error is None:
                lines.append(line)
        out.write("@@\n" + "".join(line + "\n" for line in ([error] if error else lines)))
