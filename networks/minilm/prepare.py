"""Turns sentences into what //networks/minilm:encoder takes, and embeds the first of them itself.

    prepare.py MODEL.safetensors TOKENIZER.json SENTENCES.txt OUT.safetensors

OUT has `ids` [sentences, tokens], zero past each sentence's end; `lengths` [sentences]; and
`embeddings` [first sentences, 384], float64: the model in NumPy, written from its description (Devlin
et al., "BERT", 2018; mean over tokens and unit length as in Reimers and Gurevych, "Sentence-BERT",
2019) and independent of the encoder in C++, which is checked against it.
"""

import math
import sys

import numpy
from safetensors import numpy as safetensors
from tokenizers import Tokenizer

HEADS = 12
EPSILON = 1e-12  # config.json: layer_norm_eps
EMBEDDED = 32

_erf = numpy.frompyfunc(math.erf, 1, 1)


def _linear(x, weights, name):
    return x @ weights[name + ".weight"].T + weights[name + ".bias"]


def _layer_norm(x, weights, name):
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred ** 2).mean(-1, keepdims=True)
    return (centred / numpy.sqrt(variance + EPSILON) * weights[name + ".weight"]
            + weights[name + ".bias"])


def _attention(x, weights, name):
    def heads(part):
        projected = _linear(x, weights, f"{name}.self.{part}")
        return projected.reshape(len(x), HEADS, -1).transpose(1, 0, 2)

    query, key, value = heads("query"), heads("key"), heads("value")
    scores = query @ key.transpose(0, 2, 1) / math.sqrt(query.shape[-1])
    shares = numpy.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    context = (shares @ value).transpose(1, 0, 2).reshape(x.shape)
    return _linear(context, weights, f"{name}.output.dense")


def _gelu(x):
    return x * 0.5 * (1 + _erf(x / math.sqrt(2)).astype(x.dtype))


def embed(ids, weights):
    """The embedding of one sentence, [384], without padding."""
    embeddings = "embeddings."
    x = (weights[embeddings + "word_embeddings.weight"][ids]
         + weights[embeddings + "position_embeddings.weight"][:len(ids)]
         + weights[embeddings + "token_type_embeddings.weight"][0])
    x = _layer_norm(x, weights, embeddings + "LayerNorm")
    layer = 0
    while f"encoder.layer.{layer}.output.dense.weight" in weights:
        name = f"encoder.layer.{layer}."
        x = _layer_norm(x + _attention(x, weights, name + "attention"), weights,
                        name + "attention.output.LayerNorm")
        hidden = _gelu(_linear(x, weights, name + "intermediate.dense"))
        x = _layer_norm(x + _linear(hidden, weights, name + "output.dense"), weights,
                        name + "output.LayerNorm")
        layer += 1
    mean = x.mean(0)
    return mean / numpy.linalg.norm(mean)


def main(model, tokenizer_json, sentences, out):
    with open(sentences, encoding="utf-8") as file:
        lines = file.read().splitlines()
    tokenizer = Tokenizer.from_file(tokenizer_json)
    tokenizer.no_padding()
    tokens = [encoding.ids for encoding in tokenizer.encode_batch(lines)]
    ids = numpy.zeros((len(tokens), max(map(len, tokens))), numpy.int64)
    for row, sentence in zip(ids, tokens):
        row[:len(sentence)] = sentence
    weights = {name: value.astype(numpy.float64)
               for name, value in safetensors.load_file(model).items()
               if value.dtype == numpy.float32}
    safetensors.save_file({
        "ids": ids,
        "lengths": numpy.array([len(sentence) for sentence in tokens], numpy.int64),
        "embeddings": numpy.array([embed(sentence, weights) for sentence in tokens[:EMBEDDED]]),
    }, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
