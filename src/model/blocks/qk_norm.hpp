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
    bool by_head = true;               ///< false: over all heads of q, and of k
};

/// RMSNorm of q and of k; v stays as it is. By head: over the head_size columns of each head, with
/// one gamma for the heads of q and one for those of k (Qwen 3). Otherwise over all columns of q
/// and over all of k (OLMo 2); there each tensor rank has some of the columns, and the ranks add up
/// their row sums.
class QkNorm {
public:
    /// What F leaves.
    struct Saved {
        Tensor before;          ///< (N, qkv_columns)
        Statistics statistics;  ///< (N, heads + kv_heads), or (N, 2): of q, of k
    };

    /// `shape`: all heads of the attention that follows; the functions below take the rank's heads.
    QkNorm(const QkNormOptions& options, const kernels::AttentionShape& shape,
           ParameterSource& parameters);

    /// Numbers per row that forward() leaves for the backward.
    [[nodiscard]] int64_t statistics(const kernels::AttentionShape& shape) const {
        return by_head_ ? shape.heads + shape.kv_heads : 2;
    }
    [[nodiscard]] Saved saved_views(const kernels::AttentionShape& shape, SavedViews& views) const;
    /// Scratch::workspace that the passes need.
    [[nodiscard]] int64_t workspace_bytes(const ScratchFor& use) const;
    /// out (N, qkv_columns) = `before` with q and k normalised; before and statistics: as in Saved.
    void forward(const StagePass& pass, const kernels::AttentionShape& shape, ConstTensor before,
                 Statistics statistics, Tensor out) const;
    /// dx (N, qkv_columns) does not alias dy.
    void backward_input(const StagePass& pass, const kernels::AttentionShape& shape, ConstTensor dy,
                        ConstTensor before, Statistics statistics, Tensor dx) const;
    void backward_weight(const StagePass& pass, const kernels::AttentionShape& shape,
                         ConstTensor dy, ConstTensor before, Statistics statistics) const;

private:
    std::string name_;  ///< for messages
    kernels::RmsNormOptions rms_norm_;
    bool by_head_;
    Parameter* q_;
    Parameter* k_;
};

}  // namespace vocabpipe
