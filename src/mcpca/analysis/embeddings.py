"""Contextualised embeddings of a word: what a language model makes of it in each of many sentences."""

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

EXTRA = "text"
_LONGEST = 10**6  # tokenizers without a limit give one of 10^30


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
    """Return the mean of a word's token vectors in each sentence, at its first occurrence.

    The paper's features of text: BERT's last hidden layer at the word "human", the mean over its tokens, for each
    sentence that has it; contexts are the periods and forms that sentences are from.

    Parameters
    ----------
    sentences : sequence of n str
    word : str
        Also of several words ("human nature").
    model : str, path or model of Hugging Face
        A name on the hub ("bert-base-uncased", as in the paper), which is downloaded once; a folder with a model; or a
        model that was loaded. Of one that reads and writes (T5) the half that reads is taken.
    tokenizer : optional
        That of ``model``, by default; a fast one, since tokens are found by their place in the sentence.
    layer : int
        Hidden layer, -1 being the last; 0 is the embeddings before the first.
    ignore_case : bool
        Find "Human" too.
    whole_word : bool
        Find "human" and not "humanity".
    missing : {"error", "nan"}
        What to do with sentences that do not have the word, or only beyond ``max_length``: raise, or return NaN there.
    batch_size : int
        Sentences at a time, those of like length together.
    max_length : int, optional
        Tokens of a sentence that are read; by default as many as the model takes.
    device : optional
        Where the model runs ("cuda"); by default where it is.
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
    if isinstance(sentences, str) or not hasattr(sentences, "__len__"):
        raise TypeError(f"sentences is a {type(sentences).__name__}; pass a list of sentences.")
    texts = list(sentences)
    odd = next((i for i, text in enumerate(texts) if not isinstance(text, str)), None)
    if not texts or odd is not None:
        what = "is empty" if not texts else f"has a {type(texts[odd or 0]).__name__} at {odd}"
        raise TypeError(f"sentences {what}; pass at least one str.")
    if not isinstance(word, str) or not word.strip():
        raise ValueError(f"word={word!r}; pass the word to find in the sentences.")
    if missing not in ("error", "nan"):
        raise ValueError(f"missing={missing!r}; choose 'error' or 'nan'.")
    batch_size = check_integer(batch_size, "batch_size", 1)
    check_verbose(verbose)
    places = first_places(texts, word.strip(), ignore_case=ignore_case, whole_word=whole_word)
    absent = [i for i, place in enumerate(places) if place is None]
    if absent and missing == "error":
        raise ValueError(
            f"{len(absent)} of {len(texts)} sentences do not have word={word!r}, the first at {absent[0]}: "
            f"{texts[absent[0]][:60]!r}. Leave them out, or pass missing='nan'."
        )
    torch = require("torch", EXTRA)
    network, tokens = _loaded(model, tokenizer, device)
    layer = check_integer(layer, "layer", -_n_layers(network) - 1, _n_layers(network))
    longest = _max_length(network, tokens, max_length)
    with reporting(verbose, "tokens") as report:
        found = _tokenised(texts, places, tokens, longest, report)
    lost = [i for i, one in enumerate(found) if one is None and places[i] is not None]
    if lost and missing == "error":
        raise ValueError(
            f"In {len(lost)} of {len(texts)} sentences word={word!r} is beyond the first {longest} tokens, the first "
            f"at {lost[0]}: split these sentences, raise max_length where the model takes more, or pass missing='nan'."
        )
    was_training = network.training
    network.eval()
    try:
        with torch.no_grad(), reporting(verbose, "embeddings") as report:
            return _embedded(found, network, tokens, layer, batch_size, report, torch)
    finally:
        network.train(was_training)


class _Tokens(NamedTuple):
    """A sentence as the model takes it, and the positions of the word in it."""

    ids: list[int]
    positions: list[int]


def first_places(
    texts: Sequence[str], word: str, *, ignore_case: bool, whole_word: bool
) -> list[tuple[int, int] | None]:
    """Return where the word first is in each text, as (start, end) of characters, or None."""
    pattern = r"\s+".join(map(re.escape, word.split()))
    if whole_word:
        pattern = rf"(?<!\w){pattern}(?!\w)"
    find = re.compile(pattern, re.IGNORECASE if ignore_case else 0).search
    return [None if match is None else match.span() for match in map(find, texts)]


def _tokenised(
    texts: list[str], places: list[tuple[int, int] | None], tokenizer: Any, longest: int, report: Report
) -> list[_Tokens | None]:
    """Return each sentence with the positions of the word; None where it is not among the first tokens."""
    found: list[_Tokens | None] = []
    for first in range(0, len(texts), 1000):
        coded = tokenizer(texts[first : first + 1000], truncation=True, max_length=longest, return_offsets_mapping=True)
        for ids, offsets, place in zip(coded["input_ids"], coded["offset_mapping"], places[first:], strict=False):
            at = [] if place is None else [i for i, (a, b) in enumerate(offsets) if a < place[1] and b > place[0]]
            # A word that is cut in the middle is not the word.
            whole = bool(at) and place is not None and offsets[at[-1]][1] >= place[1]
            found.append(_Tokens(ids, at) if whole else None)
        report("tokens", len(found), len(texts))
    return found


def _embedded(
    found: list[_Tokens | None], network: Any, tokenizer: Any, layer: int, batch_size: int, report: Report, torch: Any
) -> Array:
    out: Array | None = None
    # Sentences of like length are in one batch, so that little of it is padding.
    order = sorted((i for i, one in enumerate(found) if one is not None), key=lambda i: len(found[i].ids))  # type: ignore[union-attr]
    for first in range(0, len(order), batch_size):
        mine = order[first : first + batch_size]
        own = [one for i in mine if (one := found[i]) is not None]
        # Padding is at either end, by the tokenizer; positions are those of the sentence alone. What is masked has no
        # say, so models without a token for padding (GPT-2) can have any.
        lengths = np.array([len(one.ids) for one in own])
        before = lengths.max() - lengths
        shift = before if tokenizer.padding_side == "left" else np.zeros_like(before)
        ids = np.full((len(own), lengths.max()), getattr(tokenizer, "pad_token_id", None) or 0)
        mask = np.zeros_like(ids)
        for row, one in enumerate(own):
            place = slice(int(shift[row]), int(shift[row] + lengths[row]))
            ids[row, place], mask[row, place] = one.ids, 1
        batch = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
        batch = {name: values.to(network.device) for name, values in batch.items()}
        hidden = network(**batch, output_hidden_states=True).hidden_states[layer]
        vectors = [
            hidden[row, torch.tensor(one.positions, device=hidden.device) + int(shift[row])].mean(dim=0)
            for row, one in enumerate(own)
        ]
        block = torch.stack(vectors).float().cpu().numpy()
        if out is None:
            out = np.full((len(found), block.shape[1]), np.nan, dtype=np.float32)
        out[mine] = block
        report("embeddings", min(first + batch_size, len(order)), len(order))
    if out is None:
        raise ValueError("No sentence has the word within reach of the model; there is nothing to embed.")
    return out


def _loaded(model: Any, tokenizer: Any, device: Any) -> tuple[Any, Any]:
    """Return the model and its fast tokenizer."""
    if not isinstance(model, (str, os.PathLike)) and not hasattr(model, "config"):
        raise TypeError(f"model is a {type(model).__name__}; pass a name, a folder or a model of Hugging Face.")
    transformers = require("transformers", EXTRA)
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
            f"tokenizer is a {type(tokens).__name__}, which does not tell where tokens are in a sentence; pass a "
            "fast one."
        )
    if getattr(network.config, "is_encoder_decoder", False):
        network = network.get_encoder()  # the half that reads
    if device is not None:
        network = network.to(device)
    return network, tokens


def _n_layers(network: Any) -> int:
    return int(getattr(network.config, "num_hidden_layers", 1))


def _max_length(network: Any, tokenizer: Any, given: int | None) -> int:
    limits = [getattr(network.config, "max_position_embeddings", _LONGEST), tokenizer.model_max_length]
    most = int(min(*limits, _LONGEST))
    return most if given is None else check_integer(given, "max_length", 3, most, f"The model reads {most} tokens.")
