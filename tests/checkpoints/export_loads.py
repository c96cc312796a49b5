"""Does `transformers` load an export, and compute the expected logits?

    export_loads.py EXPORT TOKENS LOGITS [TOLERANCE]

EXPORT: a folder with config.json and model.safetensors. TOKENS: raw little-endian uint16; sample i is
tokens[i*T : i*T+T]. LOGITS: an .npy, or an .h5 with a dataset "logits", of shape (samples, T, vocabulary).
Exits 0 when the relative norm of the difference is below TOLERANCE (1e-4) for every sample, in float32.
"""
import sys

import numpy as np
import torch
from transformers import GPT2LMHeadModel


def main(export, tokens, logits, tolerance="1e-4"):
    if logits.endswith(".npy"):
        expected = np.load(logits)
    else:
        import h5py

        with h5py.File(logits, "r") as f:
            expected = f["logits"][:]
    model, info = GPT2LMHeadModel.from_pretrained(export, dtype=torch.float32, output_loading_info=True)
    complaints = {key: list(names) for key, names in info.items() if names}
    if complaints:
        sys.exit(f"{export}: {complaints}")
    samples, length, vocabulary = expected.shape
    stream = np.fromfile(tokens, "<u2")[: samples * length].astype(np.int64).reshape(samples, length)
    with torch.no_grad():
        found = model.eval()(torch.from_numpy(stream)).logits.numpy()
    if found.shape != expected.shape:
        sys.exit(f"{export}: logits of shape {found.shape}, expected {expected.shape}")
    axes = (1, 2)
    error = np.sqrt(((found - expected) ** 2).sum(axes) / (expected**2).sum(axes))
    print(f"{export}: {samples} samples of {length} tokens, largest relative error of the logits {error.max():.2e}")
    if not error.max() < float(tolerance):
        sys.exit(f"above {tolerance}")


if __name__ == "__main__":
    main(*sys.argv[1:])
