"""Contextualised embeddings of a word: the vectors that a language model gives it in each of many sentences.

Makes the rows of the paper's analysis of text, which then go to ``MCPCA.fit`` with the period and form of each sentence
as contexts. Nothing else here needs PyTorch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from .._utils.arguments import check_integer
from .._utils.optional import require
from .._utils.progress import check_verbose, reporting
from .._utils.types import Array, Report

TEXT_EXTRA = "text"
_MOST_TOKENS = 10**6  # stands for no limit; tokenizers without one report 10^30, which overflows
_TOKENIZED_AT_ONCE = 1000  # sentences: enough to keep a fast tokenizer busy, few enough to report progress


def contextual_embeddings(
    sentences: Sequence[str],
    word: str,
    model: Any = "bert-base-uncased",
    *,
    tokenizer: Any = None,
    layer: int = -1,
    ignore_case: bool = True,
    whole_word: bool = True,
    missing: Literal["error", "nan"] = "error",
    batch_size: int = 32,
    max_length: int | None = None,
    device: Any = None,
    verbose: Any = None,
) -> Array:
    """Return the mean of a word's token vectors at its first occurrence in each sentence.

    The paper's features of text: BERT's last hidden layer at the word "human", averaged over its tokens, for each
    sentence that contains it; contexts are the periods and forms that sentences are from.

    Parameters
    ----------
    sentences : sequence of n str
    word : str
        May be several words ("human nature").
    model : str, path or model of Hugging Face
        A name on the hub ("bert-base-uncased", as in the paper), which is downloaded once; a folder with a model; or a
        loaded model. Of an encoder-decoder (T5) the encoder is used.
    tokenizer : optional
        By default that of ``model``. It must be a fast one, since tokens are found by their place in the sentence.
    layer : int
        Hidden layer: -1 is the last, 0 the embeddings before the first.
    ignore_case : bool
        Also find "Human".
    whole_word : bool
        Find "human" but not "humanity".
    missing : {"error", "nan"}
        Whether sentences without the word, or with the word only beyond ``max_length``, are an error or give NaN.
    batch_size : int
        Number of sentences at a time, those of similar length together.
    max_length : int, optional
        Number of tokens of a sentence to read; by default as many as the model takes.
    device : optional
        Where to run the model ("cuda"); by default where it is.
    verbose : None, bool or callable
        Progress, as in ``MCPCA``.

    Returns
    -------
    ndarray (n, d) of float32
        In the order of the sentences.

    Notes
    -----
    Needs Transformers and PyTorch (extra ``text``). Memory: all tokens, and one batch in the model.
    """
    # A str is a sequence too, of characters.
    if isinstance(sentences, str) or not hasattr(sentences, "__len__"):
        raise TypeError(f"sentences is a {type(sentences).__name__}; pass a list of sentences.")
    texts = list(sentences)
    if not texts:
        raise TypeError("sentences is empty; pass at least one str.")
    not_text = next((i for i, text in enumerate(texts) if not isinstance(text, str)), None)
    if not_text is not None:
        raise TypeError(f"sentences has a {type(texts[not_text]).__name__} at {not_text}; pass str alone.")
    if not isinstance(word, str) or not word.strip():
        raise ValueError(f"word={word!r}; pass the word to find in the sentences.")
    if missing not in ("error", "nan"):
        raise ValueError(f"missing={missing!r}; choose 'error' or 'nan'.")
    batch_size = check_integer(batch_size, "batch_size", 1)
    check_verbose(verbose)
    # Before the model is loaded: a missing word is found in a moment, loading may take minutes.
    places = first_places(texts, word.strip(), ignore_case=ignore_case, whole_word=whole_word)
    absent = [i for i, place in enumerate(places) if place is None]
    if absent and missing == "error":
        raise ValueError(
            f"{len(absent)} of {len(texts)} sentences do not have word={word!r}, the first at {absent[0]}: "
            f"{texts[absent[0]][:60]!r}. Leave them out, or pass missing='nan'."
        )
    torch = require("torch", TEXT_EXTRA)
    network, tokens = _loaded(model, tokenizer, device)
    # hidden_states holds the embeddings before the first layer too: n_layers + 1 entries.
    layer = check_integer(layer, "layer", -_n_layers(network) - 1, _n_layers(network))
    longest = _max_length(network, tokens, max_length)
    with reporting(verbose, "tokens") as report:
        tokenised = _tokenised(texts, places, tokens, longest, report)
    # Found in the text, but cut off by the limit of the model: another way out than a missing word.
    beyond = [i for i, sentence in enumerate(tokenised) if sentence is None and places[i] is not None]
    if beyond and missing == "error":
        raise ValueError(
            f"In {len(beyond)} of {len(texts)} sentences word={word!r} is beyond the first {longest} tokens, the first "
            f"at {beyond[0]}: split these sentences, raise max_length if the model takes more, or pass missing='nan'."
        )
    # Dropout is off in evaluation mode; the caller's model is left in the mode it was in.
    was_training = network.training
    network.eval()
    try:
        with torch.no_grad(), reporting(verbose, "embeddings") as report:
            return _embedded(tokenised, network, tokens, layer, batch_size, report, torch)
    finally:
        network.train(was_training)


class _Tokens(NamedTuple):
    """The token ids of a sentence, and the positions of the word among them."""

    ids: list[int]
    positions: list[int]


def first_places(
    texts: Sequence[str], word: str, *, ignore_case: bool, whole_word: bool
) -> list[tuple[int, int] | None]:
    """Return the first place of the word in each text, as (start, end) of characters, or None."""
    pattern = r"\s+".join(map(re.escape, word.split()))  # words may be on two lines of a sentence
    # Look-arounds instead of \b, which would need a word character at the ends of ``word`` itself.
    if whole_word:
        pattern = rf"(?<!\w){pattern}(?!\w)"
    find = re.compile(pattern, re.IGNORECASE if ignore_case else 0).search
    return [None if match is None else match.span() for match in map(find, texts)]


def _tokenised(
    texts: list[str], places: list[tuple[int, int] | None], tokenizer: Any, longest: int, report: Report
) -> list[_Tokens | None]:
    """Return each sentence with the positions of the word; None if it is not whole among the first tokens."""
    tokenised: list[_Tokens | None] = []
    for first in range(0, len(texts), _TOKENIZED_AT_ONCE):
        batch = texts[first : first + _TOKENIZED_AT_ONCE]
        # Offsets say from which characters a token was made, which finds the word whatever the vocabulary.
        coded = tokenizer(batch, truncation=True, max_length=longest, return_offsets_mapping=True)
        # strict=False: ``places[first:]`` goes on beyond the batch.
        for ids, offsets, place in zip(coded["input_ids"], coded["offset_mapping"], places[first:], strict=False):
            if place is None:
                tokenised.append(None)
                continue
            start, end = place
            # Tokens that overlap the word. Special tokens have the place (0, 0), which overlaps nothing.
            positions = [i for i, (a, b) in enumerate(offsets) if a < end and b > start]
            # Truncation may cut the word in the middle, and a part of it is another word.
            is_whole = bool(positions) and offsets[positions[-1]][1] >= end
            tokenised.append(_Tokens(ids, positions) if is_whole else None)
        report("tokens", len(tokenised), len(texts))
    return tokenised


def _embedded(
    tokenised: list[_Tokens | None],
    network: Any,
    tokenizer: Any,
    layer: int,
    batch_size: int,
    report: Report,
    torch: Any,
) -> Array:
    """Return the mean vector of the word in each sentence (n, d); NaN for those that are None."""
    embeddings: Array | None = None
    with_word = [(i, sentence) for i, sentence in enumerate(tokenised) if sentence is not None]
    # Sentences of similar length share a batch, so that little of it is padding.
    with_word.sort(key=lambda pair: len(pair[1].ids))
    for first in range(0, len(with_word), batch_size):
        batch = with_word[first : first + batch_size]
        sentences = [sentence for _, sentence in batch]
        # Tokenizers pad on either side, and positions are counted without padding. The mask takes padding out of the
        # computation, so models without a padding token (GPT-2) can have any.
        lengths = np.array([len(sentence.ids) for sentence in sentences])
        padding = lengths.max() - lengths
        shift = padding if tokenizer.padding_side == "left" else np.zeros_like(padding)
        ids = np.full((len(sentences), lengths.max()), getattr(tokenizer, "pad_token_id", None) or 0)
        mask = np.zeros_like(ids)
        for row, sentence in enumerate(sentences):
            place = slice(int(shift[row]), int(shift[row] + lengths[row]))
            ids[row, place] = sentence.ids
            mask[row, place] = 1
        inputs = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
        inputs = {name: values.to(network.device) for name, values in inputs.items()}
        hidden = network(**inputs, output_hidden_states=True).hidden_states[layer]  # (batch, tokens, d)
        # Positions of the word, moved by the padding on the left; (d,) each.
        vectors = [
            hidden[row, torch.tensor(sentence.positions, device=hidden.device) + int(shift[row])].mean(dim=0)
            for row, sentence in enumerate(sentences)
        ]
        # float: a model in half precision would otherwise give float16, or bfloat16, which NumPy lacks.
        block = torch.stack(vectors).float().cpu().numpy()
        if embeddings is None:  # d is known from the first batch on
            embeddings = np.full((len(tokenised), block.shape[1]), np.nan, dtype=np.float32)
        # Back to the order of the sentences.
        embeddings[[i for i, _ in batch]] = block
        report("embeddings", min(first + batch_size, len(with_word)), len(with_word))
    if embeddings is None:
        raise ValueError("No sentence has the word within reach of the model; there is nothing to embed.")
    return embeddings


def _loaded(model: Any, tokenizer: Any, device: Any) -> tuple[Any, Any]:
    """Return the model and its fast tokenizer."""
    if not isinstance(model, (str, os.PathLike)) and not hasattr(model, "config"):
        raise TypeError(f"model is a {type(model).__name__}; pass a name, a folder or a model of Hugging Face.")
    transformers = require("transformers", TEXT_EXTRA)
    name = getattr(model, "name_or_path", model)
    try:
        network = model if hasattr(model, "config") else transformers.AutoModel.from_pretrained(model)
        tokens = transformers.AutoTokenizer.from_pretrained(name) if tokenizer is None else tokenizer
    except (OSError, ValueError) as error:
        first = str(error).strip().split("\n")[0]
        raise OSError(
            f"model={name!r} or its tokenizer could not be loaded ({first}). Pass a name on the Hugging Face hub, "
            "which needs the network once, a folder with a model and its tokenizer, or both as objects."
        ) from error
    if not getattr(tokens, "is_fast", False):
        raise ValueError(
            f"tokenizer is a {type(tokens).__name__}, which does not tell where tokens are in a sentence; pass a fast "
            "tokenizer."
        )
    if getattr(network.config, "is_encoder_decoder", False):
        network = network.get_encoder()  # the decoder would need text to write
    if device is not None:
        network = network.to(device)
    return network, tokens


def _n_layers(network: Any) -> int:
    return int(getattr(network.config, "num_hidden_layers", 1))


def _max_length(network: Any, tokenizer: Any, max_length: int | None) -> int:
    """Return ``max_length``, or the smaller of the limits of the model and of its tokenizer."""
    of_model = getattr(network.config, "max_position_embeddings", _MOST_TOKENS)
    # The configuration of a model may count positions that text cannot use, as RoBERTa's does: 514, of which 512.
    most = int(min(of_model, tokenizer.model_max_length, _MOST_TOKENS))
    if max_length is None:
        return most
    return check_integer(max_length, "max_length", 3, most, f"The model reads {most} tokens.")
