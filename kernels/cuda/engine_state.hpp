// SPDX-License-Identifier: Apache-2.0
// Private to kernels/cuda: the only header of this folder that includes cuBLASLt.
#pragma once

#include <cublasLt.h>

#include "kernels/cuda/engine.hpp"

namespace vocabpipe::kernels::cuda {

struct Engine::State {
    State();
    ~State();
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    cublasLtHandle_t blas = nullptr;
};

}  // namespace vocabpipe::kernels::cuda
