"""What `transformers` makes of config.json files: config_values.py FILE, a JSON list of them, prints a JSON list.

An element is null where it refuses the file.
"""
import json
import sys

from transformers import CONFIG_MAPPING


def values_of(config):
    rotary = config.rope_parameters
    heads = config.num_attention_heads
    return {
        "hidden": config.hidden_size,
        "layers": config.num_hidden_layers,
        "heads": heads,
        "kv_heads": getattr(config, "num_key_value_heads", None) or heads,
        "head": getattr(config, "head_dim", None) or config.hidden_size // heads,
        "features": config.intermediate_size,
        "vocab": config.vocab_size,
        "context": config.max_position_embeddings,
        "tied": config.tie_word_embeddings,
        "epsilon": config.layer_norm_eps if config.model_type == "gpt_neox" else config.rms_norm_eps,
        "base": rotary["rope_theta"],
        "share": rotary.get("partial_rotary_factor", 1.0),
        "factor": rotary.get("factor", 1.0),
        "parallel": getattr(config, "use_parallel_residual", False),
    }


def read(config):
    try:
        return values_of(CONFIG_MAPPING[config.pop("model_type")](**config))
    except (KeyError, TypeError, ValueError) as e:
        print(e, file=sys.stderr)
        return None


json.dump([read(config) for config in json.load(open(sys.argv[1]))], sys.stdout)
