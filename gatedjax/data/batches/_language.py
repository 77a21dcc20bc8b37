"""Batches of a token stream for truncated back-propagation through time."""

import numpy as np

from gatedjax._utils.types import FILLER_ID
from gatedjax.data.batches._plan import Batch, StepBatches, check_sizes
from gatedjax.data.sets._ptb import TokenStream


class LanguageModelBatches(StepBatches):
    """Contiguous windows: each batch continues where the previous batch ended.

    The n tokens of the stream are divided into `batch_size` rows of consecutive tokens, whose
    lengths differ by at most 1, and each row into windows of `num_steps`. The input at a token is
    the previous token of the stream, also across rows and windows; at the first token it is the
    end-of-sentence token. An epoch therefore predicts each of the n tokens exactly once. All epochs
    have the same batches in the same order.

    A batch is a dict, B rows of T = `num_steps`:

    - tokens, targets int32 [B, T]: the inputs and the tokens that follow. Cells beyond the end of
      a row have id 0, which is also a word; `token_weight` is 0 there.
    - token_weight f32 [B, T]: 1 at the tokens to predict, else 0; lengths int32 [B] counts them.
    - reset bool [B]: True at the first window of an epoch, where the carried state is set to 0.
    - example_id int32 [B]: `stream.first_id` plus the position in the stream of the first target.
      It identifies a window in all epochs. -1 for a row that ends before the last window.
    - weight f32 [B]: 1, or 0 for such a row.

        >>> from gatedjax.data import ClosedVocabulary, SourceInfo
        >>> sentences = [{"tokens": ["a", "b", "b", "<eos>"], "example_id": 0}]
        >>> vocabulary = ClosedVocabulary(["<eos>", "a", "b"])
        >>> info = SourceInfo("letters", "train", class_names=())
        >>> stream = TokenStream(sentences, info, vocabulary=vocabulary)
        >>> batch = LanguageModelBatches(stream, batch_size=2, num_steps=2)[0]
        >>> print(batch["tokens"], batch["targets"])
        [[0 1]
         [2 2]] [[1 2]
         [2 0]]

    Deviation: the usual reader (of TensorFlow's PTB tutorial) drops tokens that do not fill a
    window and never predicts the first token of a row (at most n - 1 predictions).

    Args:
      stream: the tokens of a split, a `TokenStream`.
      batch_size: B, rows per batch.
      num_steps: tokens per window, the length over which gradients flow.
      one_pass: True ends the batches after an epoch.

    Raises:
      ValueError: if batch_size or num_steps is below 1, or there are more rows than tokens.

    Attributes:
      steps_per_epoch: the number of batches of an epoch.
      padding_fraction: share of padding among the cells of an epoch.
    """

    def __init__(
        self, stream: TokenStream, *, batch_size: int, num_steps: int, one_pass: bool = False
    ) -> None:
        check_sizes(batch_size=batch_size, num_steps=num_steps)
        if stream.num_tokens < batch_size:
            raise ValueError(
                f"batch_size must be at most {stream.num_tokens}, the tokens of the stream, got "
                f"{batch_size}"
            )
        self.stream, self.one_pass = stream, one_pass
        self.batch_size, self.num_steps = batch_size, num_steps
        shortest, longer = divmod(stream.num_tokens, batch_size)
        sizes = np.full(batch_size, shortest)
        # The first rows get the remaining tokens, so that no token is lost.
        sizes[:longer] += 1
        self._ends = np.cumsum(sizes)
        self._starts = self._ends - sizes
        self._inputs = np.concatenate([np.array([stream.end_id], np.int32), stream.ids[:-1]])
        # The first row is the longest, so that it determines the number of windows.
        self.steps_per_epoch = -(-int(sizes[0]) // num_steps)
        cells = self.steps_per_epoch * batch_size * num_steps
        self.padding_fraction = 1.0 - stream.num_tokens / cells

    @classmethod
    def eval(
        cls, stream: TokenStream, *, batch_size: int = 1, num_steps: int = 35
    ) -> "LanguageModelBatches":
        """Returns an ordered pass: `len` batches, each token predicted exactly once.

        The stream is divided into `batch_size` rows, and a batch has `num_steps` tokens of each
        row. With batch_size 1 each token is predicted from all tokens before it, like in published
        perplexities. More rows are faster, but each starts from the zero state.
        """
        return cls(stream, batch_size=batch_size, num_steps=num_steps, one_pass=True)

    def __getitem__(self, step: int) -> Batch:
        _, window = self._position(step)
        first = self._starts + window * self.num_steps
        at = first[:, None] + np.arange(self.num_steps)
        real = at < self._ends[:, None]
        lengths = real.sum(1).astype(np.int32)
        # Positions beyond a row may lie beyond the stream. They read position 0, and the result is
        # masked.
        safe = np.where(real, at, 0)
        some = lengths > 0
        return {
            "tokens": np.where(real, self._inputs[safe], 0).astype(np.int32),
            "targets": np.where(real, self.stream.ids[safe], 0).astype(np.int32),
            "token_weight": real.astype(np.float32),
            "lengths": lengths,
            "reset": np.full(self.batch_size, window == 0),
            "example_id": np.where(some, self.stream.first_id + first, FILLER_ID).astype(np.int32),
            "weight": some.astype(np.float32),
        }

    def __repr__(self) -> str:
        return f"LanguageModelBatches({self.stream!r}, {self.batch_size} x {self.num_steps})"
