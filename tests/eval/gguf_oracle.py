"""The reference side of exactness.py: a GGUF file as a transformers model in float32, and its logits over given ids.

Needs gguf, numpy, torch, tokenizers and transformers.
"""

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

ROWS_AT_ONCE = 256  # rows of logits held in memory at once


def field(reader, key):
    found = reader.fields.get(key)
    if found is None:
        raise SystemExit(f"{reader.path if hasattr(reader, 'path') else 'GGUF'}: no metadata key {key}")
    return found.contents()


def encode(reader, text):
    """Token ids by the Python `tokenizers`, built from the file's own vocabulary and merges (Digits, then ByteLevel)."""
    vocabulary = {token: i for i, token in enumerate(field(reader, "tokenizer.ggml.tokens"))}
    merges = [tuple(merge.split(" ", 1)) for merge in field(reader, "tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer.encode(text).ids


def split_halves(weight, heads):
    """GGUF stores q and k rows with rotary pairs side by side (2p, 2p + 1); transformers wants (p, p + dim / 2)."""
    rows, width = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, width).swapaxes(1, 2).reshape(rows, width)


def state_dict(reader, config):
    """The tensors under transformers' names, dequantised to float32."""
    names = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    state = {}
    for tensor in reader.tensors:
        value = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if tensor.name == "token_embd.weight":
            name = "model.embed_tokens.weight"
        elif tensor.name == "output_norm.weight":
            name = "model.norm.weight"
        elif tensor.name == "output.weight":
            name = "lm_head.weight"
        elif tensor.name.startswith("blk."):
            _, layer, part, _ = tensor.name.split(".")
            if part == "attn_q":
                value = split_halves(value, config.num_attention_heads)
            elif part == "attn_k":
                value = split_halves(value, config.num_key_value_heads)
            name = f"model.layers.{layer}.{names[part]}.weight"
        else:
            raise SystemExit(f"tensor {tensor.name}: not part of a llama model")
        state[name] = torch.from_numpy(np.ascontiguousarray(value))
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    return state


def build(reader, dtype=torch.float32):
    heads = field(reader, "llama.attention.head_count")
    tied = all(tensor.name != "output.weight" for tensor in reader.tensors)
    config = LlamaConfig(
        vocab_size=len(field(reader, "tokenizer.ggml.tokens")), hidden_size=field(reader, "llama.embedding_length"),
        intermediate_size=field(reader, "llama.feed_forward_length"),
        num_hidden_layers=field(reader, "llama.block_count"), num_attention_heads=heads,
        num_key_value_heads=field(reader, "llama.attention.head_count_kv"),
        max_position_embeddings=field(reader, "llama.context_length"),
        rms_norm_eps=field(reader, "llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": field(reader, "llama.rope.freq_base")},
        tie_word_embeddings=tied, attn_implementation="eager")
    model = LlamaForCausalLM(config).to(dtype).eval()
    model.load_state_dict({name: value.to(dtype) for name, value in state_dict(reader, config).items()}, strict=True)
    return model


def write_logits(reader, ids, path, dtype=torch.float32):
    """Logits of every position, teacher-forced in one pass, as a .npy file float32 [tokens, vocab]."""
    model = build(reader, dtype)
    with torch.inference_mode():
        hidden = model.model(torch.tensor([ids]), use_cache=False).last_hidden_state[0]
        out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(len(ids), model.config.vocab_size))
        for begin in range(0, len(ids), ROWS_AT_ONCE):
            out[begin:begin + ROWS_AT_ONCE] = model.lm_head(hidden[begin:begin + ROWS_AT_ONCE]).float().numpy()
        out.flush()
