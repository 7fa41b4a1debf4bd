"""The GPU engine without a host: shaders made from templates, and tapes lowered to dispatches. Hosts are webgpu*.py."""
