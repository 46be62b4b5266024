"""``metakel tune``: commands that work, fail, hang, print nonsense, and values that attack."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from processes import SECOND_WAITS, TUNE, read_pid, usual_signals, wait_until_gone
from strangers_table import KINDS

from metakel.cli.program import Program
from metakel.errors import InputError

PLACES = ("{learning rate}", "{n=layers}", "{opt imizer}")
SCORE = "import sys; r, n, o = sys.argv[1:]; print('training\\nacc:', 90 - (int(n) - 4) ** 2)"


def python(code: str, *words: str) -> tuple[str, ...]:
    return ("--", sys.executable, "-c", code, *words)


def events(path: str = "metakel-run.jsonl") -> list[dict]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_a_run_its_resumption_and_its_result(metakel, prior):
    first = metakel("tune", prior, "--budget", 2, *python(SCORE, *PLACES))
    assert first.code == 0, first.err
    again = metakel("tune", prior, "--budget", 4, "--json", *python(SCORE, *PLACES))
    assert "2 values so far" in again.err
    lines = [json.loads(line) for line in again.out.splitlines()]
    assert [line["event"] for line in lines] == ["complete", "complete", "finished"]
    assert [line.get("number") for line in lines] == [2, 3, None]
    assert lines[-1]["best"]["value"] == max(e["value"] for e in events() if "value" in e)
    done = metakel("tune", prior, "--budget", 4, *python(SCORE, *PLACES))
    assert "done: the budget of 4 evaluations is spent" in done.out


def test_a_value_goes_to_the_program_as_it_is_and_to_no_shell(metakel, prior, tmp_path):
    evil = KINDS[2]  # holds a command, a semicolon and a placeholder
    fixed = ("--budget", 2, "--fix", f"opt imizer={evil}")
    (tmp_path / "expected").write_text(f"--o={evil}")
    code = "import sys; print(float(sys.argv[1] == open('expected').read()))"
    assert metakel("tune", prior, *fixed, *python(code, "--o={opt imizer}")).code == 0
    assert [e["value"] for e in events() if e["event"] == "told"] == [1.0, 1.0]
    assert not (tmp_path / "owned").exists()


def test_the_configuration_is_in_the_environment_too(metakel, prior):
    code = (
        "import json, os; c = json.loads(os.environ['METAKEL_CONFIGURATION']); "
        "print(c['n=layers'] + 100 * int(os.environ['METAKEL_NUMBER']))"
    )
    result = metakel("tune", prior, "--budget", 2, *python(code))
    assert "only in METAKEL_CONFIGURATION: learning rate, n=layers, opt imizer" in result.err
    told = [e for e in events() if e["event"] == "told"]
    assert [e["value"] - e["configuration"]["n=layers"] for e in told] == [0, 100]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import sys; sys.exit('out of memory')", "exit code 1: out of memory"),
        ("print('no idea')", "found 'no idea'; expected a number"),
        ("", "found nothing; expected a number"),
        ("print(float('nan'))", "found 'nan'; expected a number"),
        ("import os; os.kill(os.getpid(), 9)", "signal 9"),
        ("print('1e999')", "the value is inf"),
    ],
)
def test_a_command_that_fails_is_given_up(metakel, prior, code, reason):
    result = metakel("tune", prior, "--budget", 9, "--give-up", 2, *python(code))
    assert result.code == 3
    assert "2 evaluations in a row failed" in result.err
    failed = [e for e in events() if e["event"] == "failed"]
    assert len(failed) == 2
    assert reason in failed[0]["reason"]


def test_a_command_that_hangs_is_ended_with_its_children(metakel, prior):
    hangs = (
        "--",
        "sh",
        "-c",
        "sleep 600 & echo $! > started; mv started child; echo {n=layers}; wait",
    )
    for timeout in (1, 5, 25, 125):  # a busy machine may need more to start anything
        options = ("--budget", 1, "--timeout", timeout, "--give-up", 1, "--journal", timeout)
        assert metakel("tune", prior, *options, *hangs).code == 3
        assert events(str(timeout))[-1]["reason"] == f"no result within {timeout} s"
        if Path("child").exists():
            break
    wait_until_gone(read_pid(Path("child")))


def test_a_value_in_a_file_and_a_second_try(metakel, prior):
    code = (
        "import pathlib, sys; p = pathlib.Path('tried' + sys.argv[1]); first = not p.exists(); "
        "p.touch(); pathlib.Path(sys.argv[2]).write_text('loss = 0.25\\n'); sys.exit(first)"
    )
    options = ("--budget", 2, "--retries", 1, "--value-file", "out-{number}.txt")
    result = metakel("tune", prior, *options, *python(code, "{number}", "out-{number}.txt"))
    assert result.code == 0, result.err
    assert [e["value"] for e in events() if e["event"] == "told"] == [0.25, 0.25]
    assert "trying again" in result.err


def test_mistakes_in_the_command_cost_nothing(metakel, prior):
    assert (
        "{rate} in the command is not a parameter"
        in metakel("tune", prior, "--", "echo", "{rate}").err
    )
    assert "must not depend on a parameter" in metakel("tune", prior, "--", "{opt imizer}").err
    assert metakel("tune", prior).code == 2
    assert not Path("metakel-run.jsonl").exists()
    absent = metakel("tune", prior, "--", "no-such-program-here", "{n=layers}")
    assert absent.code == 1
    assert "there is no program 'no-such-program-here'" in absent.err
    assert events()[-1]["event"] == "dropped"
    assert metakel("tune", prior, "--journal", f"{prior}/j", "--", "echo", "1").code == 4


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_stopped_run_goes_on(metakel, prior, tmp_path):
    """In a process of its own: Ctrl-C, then the same command again."""
    child = subprocess.Popen(
        [*TUNE, prior, "--budget", "3", "--json", *python(SECOND_WAITS)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, preexec_fn=usual_signals,
    )  # fmt: skip
    assert b"complete" in child.stdout.readline()
    program = read_pid(tmp_path / "begun")
    child.send_signal(signal.SIGINT)
    _, err = child.communicate()
    assert child.returncode == 130
    wait_until_gone(program)
    assert b"the same command goes on" in err
    (tmp_path / "go").touch()
    command = [*TUNE, prior, "--budget", "3", "--json", *python(SECOND_WAITS)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    numbers = [json.loads(line).get("number") for line in run.stdout.splitlines()]
    assert numbers[-3:] == [1, 2, None]  # the interrupted one is done again, under its number


@pytest.mark.parametrize(("what", "code"), [("prior", 4), ("journal", 4), ("link", 1), ("fifo", 1)])
def test_only_a_file_with_a_value_is_removed(metakel, prior, tmp_path, what, code):
    victim = tmp_path / "victim"
    names = {"prior": prior, "journal": "j", "link": "link", "fifo": "fifo"}
    victim.write_text("precious")
    Path("link").symlink_to(victim)
    os.mkfifo("fifo")
    before = prior.read_bytes()
    refused = metakel(
        "tune", prior, "--journal", "j", "--value-file", names[what], "--budget", 1, *python("")
    )
    assert refused.code == code, refused.err
    assert "; expected " in refused.err
    assert prior.read_bytes() == before
    assert what != "journal" or events("j")[0]["event"] == "started"
    assert Path("link").is_symlink()
    assert stat.S_ISFIFO(os.stat("fifo").st_mode)
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("name", ["results.csv", "out-{number}.txt"])
@pytest.mark.parametrize(
    "text",
    [
        "kind,acc\nadam,0.93\n",
        "my notes\n",
        "a,b\n1,2\n",
        "acc\n0.5\n0.7\n",
        "lr: 0.1\nepochs: 3\n",
    ],
)
def test_a_file_that_was_there_and_is_no_value_is_kept(metakel, prior, name, text):
    file = Path(name.format(number=0))
    file.write_text(text)
    write = (
        "import os, pathlib; number = os.environ['METAKEL_NUMBER']; "
        f"pathlib.Path({name!r}.format(number=number)).write_text('0.5')"
    )
    options = ("--budget", 1, "--value-file", name)
    refused = metakel("tune", prior, *options, *python(write))
    assert refused.code == 1
    assert Path("metakel-run.jsonl").exists() is ("{number}" in name)  # else at the start
    assert f"{file} is there already and is no value (found {text.splitlines()[0]!r})" in (
        " ".join(refused.err.split())
    )
    assert "move this one away" in " ".join(refused.err.split())
    assert file.read_text() == text
    file.unlink()
    assert metakel("tune", prior, *options, *python(write)).code == 0


@pytest.mark.parametrize("text", ["", "\n", "0.5", "epoch 1\nacc: 0.5\n", "nan", '{"acc": NaN}'])
def test_what_an_earlier_run_reported_is_replaced(tmp_path, text):
    file = tmp_path / "v"
    file.write_text(text)
    program = Program(
        [sys.executable, "-c", f"open({str(file)!r}, 'x').write('nonsense')"],
        value_file=str(file), objective="acc", resumed=text.startswith("epoch"),
    )  # fmt: skip
    with program.reserved(()):
        for number in range(2):  # what this run has left is replaced, whatever it is
            assert "found 'nonsense'" in program.run(number, {}).reason


def test_a_value_file_with_two_names_is_one_file(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to("out")
    one, other = (
        Program(["true"], value_file=str(tmp_path / name / "v")) for name in ("out", "link")
    )
    with one.reserved(()), pytest.raises(InputError, match="is in use"), other.reserved(()):
        pass


@pytest.mark.parametrize("empty", ["", "."])
def test_a_value_without_a_name_leads_to_no_other_place(tmp_path, monkeypatch, empty):
    monkeypatch.chdir(tmp_path)
    for template in ("{kind}/value.txt", "out/.{kind}/value.txt", "out/{kind}{kind}/value.txt"):
        with pytest.raises(InputError, match="would lead to another place"):
            Program(["true"], value_file=template, names=["kind"]).run(0, {"kind": empty})


def test_a_value_in_the_name_of_the_value_file_leads_to_no_other_place(metakel, prior, tmp_path):
    victim = tmp_path / "owned.txt"
    victim.write_text("precious")
    options = ("--value-file", "out/{opt imizer}.txt", "--fix", f"opt imizer={KINDS[2]}")
    (tmp_path / "out").mkdir()
    assert metakel("tune", prior, *options, "--budget", 1, *python("")).code == 3  # no separator
    space = json.loads(prior.read_text())
    text = json.dumps(space).replace(json.dumps(KINDS[2])[1:-1], "../owned")
    prior.write_text(text)
    options = (*options[:2], "--fix", "opt imizer=../owned", "--journal", "j")
    refused = metakel("tune", prior, *options, "--budget", 1, *python(""))
    assert refused.code == 1
    assert "'../owned', which would lead to another place" in refused.err
    assert victim.read_text() == "precious"
