// SPDX-License-Identifier: Apache-2.0
// State of the engine that knows cuBLASLt and cuDNN. Private to kernels/cuda.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/cuda/engine.hpp"
#include "kernels/cuda/handles.hpp"
#include "kernels/cuda/product_choices.hpp"
#include "kernels/cuda/product_plan.hpp"
#include "kernels/cuda/staging.hpp"

namespace vocabpipe::kernels::cuda {

class CudnnAttention;  // attention_cudnn.cpp

/// A further stream next to a lane's (side_by_side.hpp).
struct SideStream {
    Stream stream;
    Event end;  ///< recorded after its products
};

struct Engine::State {
    State();
    ~State();
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    cublasLtHandle_t blas = nullptr;
    ProductChoices choices;  ///< for plans made from now on
    std::unordered_map<ProductShape, ProductPlan, ProductShapeHash> products;
    /// Plans for other m and k that reuse the algorithm of a shape.
    std::unordered_map<ProductShape, std::map<std::pair<int64_t, int64_t>, ProductPlan>,
                       ProductShapeHash>
        pieces;
    /// Made at first use. A shared_ptr, because only its maker knows how to destroy it.
    std::shared_ptr<CudnnAttention> cudnn;
    Staging staging;
    /// Made at first use.
    std::vector<SideStream> sides;
    Event sides_begin;  ///< the other streams wait for it
};

}  // namespace vocabpipe::kernels::cuda
