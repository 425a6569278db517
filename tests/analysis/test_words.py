"""Where a word is in a sentence, which needs no language model; and what is said when there is none."""

import sys

import pytest

from mcpca.analysis import contextual_embeddings
from mcpca.analysis.embeddings import first_places


def places(text, word, **options):
    return first_places([text], word, **{"ignore_case": True, "whole_word": True, **options})[0]


def test_the_first_occurrence_is_found():
    assert places("To err is Human, human.", "human") == (10, 15)
    assert places("To err is Human, human.", "human", ignore_case=False) == (17, 22)
    assert places("Humanity is human.", "human") == (12, 17)
    assert places("Humanity is human.", "human", whole_word=False) == (0, 5)
    assert places("The human\n nature", "human nature") == (4, 17)
    assert places("superhuman", "human") is None
    assert places("a (human) b", "(human)") == (2, 9)


def test_missing_pytorch_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r'pip install "mcpca\[text\]"'):
        contextual_embeddings(["to err is human"], "human", "a model")
