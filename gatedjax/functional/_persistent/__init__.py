"""Recurrences that run all steps in a single launch on an NVIDIA GPU, with gradients.

`recurrence.cu` has the kernels. `_plan` distributes a recurrence over a card, `_compiler` compiles
the kernels with NVRTC, `_launch` calls them from JAX, `_backend` chooses between them and the scan,
and `_core` has the derivatives.
"""
