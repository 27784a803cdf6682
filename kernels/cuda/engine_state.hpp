// SPDX-License-Identifier: Apache-2.0
// Private to kernels/cuda: knows cuBLASLt and cuDNN.
#pragma once

#include <cublasLt.h>

#include <map>
#include <memory>
#include <unordered_map>

#include "kernels/cuda/engine.hpp"
#include "kernels/cuda/product_choices.hpp"
#include "kernels/cuda/product_plan.hpp"
#include "kernels/cuda/staging.hpp"

namespace vocabpipe::kernels::cuda {

class CudnnAttention;  // attention_cudnn.cpp

struct Engine::State {
    State();
    ~State();
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    cublasLtHandle_t blas = nullptr;
    ProductChoices choices;  ///< for plans that are made from now on
    std::unordered_map<ProductShape, ProductPlan, ProductShapeHash> products;
    /// Of some rows of a shape (Context::whole_rows), by their number.
    std::unordered_map<ProductShape, std::map<int64_t, ProductPlan>, ProductShapeHash> pieces;
    /// Made at first use. Shared, because only its maker knows how to destroy it.
    std::shared_ptr<CudnnAttention> cudnn;
    Staging staging;
};

}  // namespace vocabpipe::kernels::cuda
