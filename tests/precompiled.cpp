// Precompiled headers are made for a target, and a target has a file.
