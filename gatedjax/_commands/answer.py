"""`gatedjax answer FOLDER`: answers a question about a document with a trained reader."""

from gatedjax._utils.cli import program
from gatedjax.text._answer import AnswerOptions, run
from gatedjax.text.models._reader import Reader


def main(args: list[str]) -> int:
    """Runs the command and returns its exit status, 0; errors exit with status 2."""
    return run(AnswerOptions, args, f"{program()} answer", Reader.open)
