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
    bool by_head = true;               ///< else of all heads of q together, and of all of k
};

/// RMSNorm of q and of k; v stays. By head: over the head_size of each, with one gamma for the
/// heads of q and one for those of k (Qwen 3). Else over all columns of q and all of k (OLMo 2); of
/// these tensor ranks have some each, and add up what they made of them.
class QkNorm {
public:
    /// What F leaves.
    struct Saved {
        Tensor before;          ///< (N, qkv_columns)
        Statistics statistics;  ///< (N, heads + kv_heads), or (N, 2): of q, of k
    };

    /// `shape`: of attention, which it comes before, of all heads; below of the rank's.
    QkNorm(const QkNormOptions& options, const kernels::AttentionShape& shape,
           ParameterSource& parameters);

    [[nodiscard]] Saved saved_views(const kernels::AttentionShape& shape, SavedViews& views) const;
    /// Of Scratch.
    [[nodiscard]] int64_t workspace_bytes(const ScratchFor& use) const;
    /// out (N, qkv_columns) = what saved.before is with its norms.
    void forward(const StagePass& pass, const kernels::AttentionShape& shape, const Saved& saved,
                 Tensor out) const;
    /// dx (N, qkv_columns) does not alias dy.
    void backward_input(const StagePass& pass, const kernels::AttentionShape& shape, ConstTensor dy,
                        const Saved& saved, Tensor dx) const;
    void backward_weight(const StagePass& pass, const kernels::AttentionShape& shape,
                         ConstTensor dy, const Saved& saved) const;

private:
    std::string name_;  ///< for messages
    kernels::RmsNormOptions rms_norm_;
    bool by_head_;
    Parameter* q_;
    Parameter* k_;
};

}  // namespace vocabpipe
