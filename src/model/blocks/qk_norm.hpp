// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/stage_pass.hpp"
#include "src/model/blocks/token_views.hpp"
#include "src/model/parameter_source.hpp"

#include <cstdint>
#include <string>

namespace vocabpipe {

struct QkNormOptions {
    std::string q_name, k_name;        ///< without ".weight"
    kernels::RmsNormOptions rms_norm;  ///< of both
};

/// RMSNorm of every head of q and of k, each over head_size; v stays (Qwen 3).
class QkNorm {
public:
    /// What F leaves.
    struct Saved {
        Tensor before;          ///< (N, qkv_columns)
        Statistics statistics;  ///< (N, heads + kv_heads)
    };

    QkNorm(const QkNormOptions& options, int64_t head_size, ParameterSource& parameters);

    // `shape`: of attention, which it comes before.

    [[nodiscard]] Saved saved_views(const kernels::AttentionShape& shape, SavedViews& views) const;
    /// out (N, qkv_columns) = what saved.before is with its norms.
    void forward(const StagePass& pass, const kernels::AttentionShape& shape, const Saved& saved,
                 Tensor out) const;
    /// dx (N, qkv_columns) does not alias dy.
    void backward_input(const StagePass& pass, const kernels::AttentionShape& shape, ConstTensor dy,
                        const Saved& saved, Tensor dx) const;
    void backward_weight(const StagePass& pass, const kernels::AttentionShape& shape,
                         ConstTensor dy, const Saved& saved) const;

private:
    kernels::RmsNormOptions rms_norm_;
    Parameter* q_;
    Parameter* k_;
};

}  // namespace vocabpipe
