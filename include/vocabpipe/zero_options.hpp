// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace vocabpipe {

/// How long gathered weights and whole gradients of a stage stay where ranks keep only their own
/// parts of them (GradientBucket::shards_weights, shards_gradients).
enum class ReshardAfter : uint8_t {
    /// From the first to the last of consecutive passes of the stage that use them: the least
    /// memory. In 1F1B with several stages per rank nearly every microbatch gathers anew.
    use,
    /// From the first to the last such pass of the step: each weight is gathered once, and each
    /// gradient added up once, with the bits of ZeRO stage 1.
    step,
};
/// "use" or "step".
[[nodiscard]] std::string_view to_string(ReshardAfter after);
/// Throws UsageError naming the valid ones.
[[nodiscard]] ReshardAfter reshard_after_from(std::string_view name);

/// What ranks that add up the same gradients share (ZeRO; Rajbhandari et al., SC 2020).
struct ZeroOptions {
    /// What each rank keeps only its own part of between the passes that use it. 1: the optimizer's
    /// state; 2: gradients of stages, too; 3 (FSDP): their weights, too. Default: what costs no
    /// further communication.
    int stage = 1;
    ReshardAfter reshard_after = ReshardAfter::use;  ///< what stages 2 and 3 are for
    /// Gathered weights of this many stages may wait for their passes, besides those in use: with
    /// 1 a stage's weights travel while the passes of the one before run; 0 takes the least memory
    /// and hides nothing.
    int gather_ahead = 1;
    /// Member by member.
    friend bool operator==(const ZeroOptions&, const ZeroOptions&) = default;
};

}  // namespace vocabpipe
