"""contextual_embeddings with a tiny BERT that is built here, not downloaded; needs PyTorch and Transformers."""

import sys

import numpy as np
import pytest

from mcpca.analysis import contextual_embeddings

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A BERT of two layers with random weights, and a tokenizer that splits "human" in two: hu ##man."""
    from tokenizers import BertWordPieceTokenizer

    path = tmp_path_factory.mktemp("model")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a", "is", "to", "err", "nature", "of"]
    words += ["hu", "##man", "##ity", "all", "good", ".", ","]
    (path / "vocab.txt").write_text("\n".join(words))
    raw = BertWordPieceTokenizer(str(path / "vocab.txt"), lowercase=True)
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=raw._tokenizer, model_max_length=24, **special)
    tokenizer.save_pretrained(path)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=len(words), max_position_embeddings=24, **sizes)
    transformers.BertModel(config).save_pretrained(path)
    return path


SENTENCES = ["to err is human .", "human nature is good , the nature of all .", "the Human", "a human is a human ."]
SPANS = [[4, 5], [1, 2], [2, 3], [2, 3]]  # tokens of the word, after [CLS]


def one_by_one(folder, sentences, spans, layer=-1):
    """Each sentence alone, without padding; the positions of tokens given by hand."""
    network = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    out = []
    for sentence, span in zip(sentences, spans, strict=True):
        with torch.no_grad():
            hidden = network(**tokenizer(sentence, return_tensors="pt"), output_hidden_states=True).hidden_states
        out.append(hidden[layer][0, span].mean(dim=0).numpy())
    return np.array(out)


@pytest.mark.parametrize(("batch_size", "layer"), [(1, -1), (3, -1), (32, 0), (2, 1)])
def test_vectors_are_the_mean_over_the_words_tokens(folder, batch_size, layer):
    found = contextual_embeddings(SENTENCES, "human", folder, batch_size=batch_size, layer=layer)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, one_by_one(folder, SENTENCES, SPANS, layer), atol=1e-5)


def test_a_model_as_an_object_stays_as_it_was(folder):
    network = transformers.AutoModel.from_pretrained(folder)
    network.train()  # dropout must not have a say
    found = contextual_embeddings(SENTENCES, "human", network)
    np.testing.assert_allclose(found, one_by_one(folder, SENTENCES, SPANS), atol=1e-5)
    assert network.training


def test_padding_at_the_left_moves_the_word(folder):
    """The shorter sentence, [CLS] the hu ##man [SEP], comes after two tokens of padding."""
    network = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, padding_side="left")
    sentences = ["the human", "to err is human"]
    found = contextual_embeddings(sentences, "human", network, tokenizer=tokenizer)
    with torch.no_grad():
        hidden = network(**tokenizer(sentences, padding=True, return_tensors="pt")).last_hidden_state.numpy()
    np.testing.assert_allclose(found, [hidden[0, [4, 5]].mean(axis=0), hidden[1, [4, 5]].mean(axis=0)], atol=1e-5)


def test_a_model_without_a_token_for_padding(folder):
    """GPT-2 has none; what is masked, and comes after the word, has no say."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = None
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=len(tokenizer), n_positions=24, n_embd=16, n_layer=2, n_head=2)
    network = transformers.GPT2Model(config).eval()
    found = contextual_embeddings(SENTENCES, "human", network, tokenizer=tokenizer)
    for sentence, span, vector in zip(SENTENCES, SPANS, found, strict=True):
        with torch.no_grad():
            hidden = network(torch.tensor([tokenizer(sentence)["input_ids"]])).last_hidden_state[0]
        np.testing.assert_allclose(vector, hidden[span].mean(dim=0), atol=1e-5)


def test_of_a_model_that_reads_and_writes_the_reading_half_is_taken(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    network = transformers.T5Model(transformers.T5Config(vocab_size=len(tokenizer), **sizes)).eval()
    found = contextual_embeddings(SENTENCES, "human", network, tokenizer=tokenizer)
    with torch.no_grad():
        ids = torch.tensor([tokenizer(SENTENCES[0])["input_ids"]])
        hidden = network.encoder(ids).last_hidden_state[0]
    np.testing.assert_allclose(found[0], hidden[SPANS[0]].mean(dim=0), atol=1e-5)


def test_contexts_of_a_word_tell_its_vectors_apart(folder):
    first, second = contextual_embeddings(["a human is good", "all human nature"], "human", folder)
    again = contextual_embeddings(["a human is good"], "human", folder)[0]
    assert np.abs(first - second).max() > 1e-3
    np.testing.assert_allclose(first, again, atol=1e-5)


def test_sentences_without_the_word(folder):
    sentences = [SENTENCES[0], "all is good", SENTENCES[2], "the " * 30 + "human"]
    with pytest.raises(ValueError, match=r"1 of 4 sentences do not have word='human', the first at 1: 'all is good'"):
        contextual_embeddings(sentences, "human", folder)
    with pytest.raises(ValueError, match="In 1 of 3 sentences word='human' is beyond the first 24 tokens"):
        contextual_embeddings([sentences[0], sentences[2], sentences[3]], "human", folder)
    found = contextual_embeddings(sentences, "human", folder, missing="nan")
    assert np.isnan(found).all(axis=1).tolist() == [False, True, False, True]
    np.testing.assert_allclose(found[2], one_by_one(folder, sentences[2:3], [[2, 3]])[0], atol=1e-5)
    with pytest.raises(ValueError, match="No sentence has the word within reach"):
        contextual_embeddings(["all is good"], "human", folder, missing="nan")


def test_a_word_that_is_cut_in_the_middle_is_not_the_word(folder):
    """[CLS] the hu [SEP]: three words more would be needed."""
    whole = contextual_embeddings(["the human is"], "human", folder, max_length=5, missing="nan")
    assert np.isfinite(whole).all()
    with pytest.raises(ValueError, match="beyond the first 4 tokens"):
        contextual_embeddings(["the human is"], "human", folder, max_length=4)


def test_progress_is_reported(folder):
    seen = []
    contextual_embeddings(SENTENCES, "human", folder, batch_size=3, verbose=lambda *stage: seen.append(stage))
    assert seen == [("tokens", 4, 4), ("embeddings", 3, 4), ("embeddings", 4, 4)]


def test_bad_input(folder, monkeypatch, tmp_path):
    with pytest.raises(TypeError, match="sentences is a str"):
        contextual_embeddings("human", "human", folder)
    with pytest.raises(TypeError, match="sentences has a float at 1"):
        contextual_embeddings(["human", np.nan], "human", folder)
    with pytest.raises(TypeError, match="sentences is empty"):
        contextual_embeddings([], "human", folder)
    with pytest.raises(ValueError, match="word=' '; pass the word"):
        contextual_embeddings(["human"], " ", folder)
    with pytest.raises(ValueError, match="missing='drop'; choose"):
        contextual_embeddings(["human"], "human", folder, missing="drop")
    with pytest.raises(ValueError, match="layer=3 is out of bounds: -3 <= layer <= 2"):
        contextual_embeddings(["human"], "human", folder, layer=3)
    with pytest.raises(ValueError, match="max_length=99 is out of bounds: 3 <= max_length <= 24"):
        contextual_embeddings(["human"], "human", folder, max_length=99)
    with pytest.raises(TypeError, match="model is a NoneType; pass a name"):
        contextual_embeddings(["human"], "human", None)
    with pytest.raises(OSError, match="could not be loaded"):
        contextual_embeddings(["human"], "human", tmp_path)
    with pytest.raises(ValueError, match="does not tell where tokens are"):
        contextual_embeddings(["human"], "human", folder, tokenizer=object())
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r'pip install "mcpca\[text\]"'):
        contextual_embeddings(["human"], "human", folder)
