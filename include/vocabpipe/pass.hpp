// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace vocabpipe {

/// A unit of compute on one rank. The letters are those of PyTorch's schedule files, of the paper
/// (S, T) and of docs/schedules.md.
enum class Op : uint8_t {
    F,       ///< forward of a stage
    B,       ///< full backward of a stage: I, then W
    I,       ///< gradient with respect to the stage's input
    W,       ///< gradient with respect to the stage's weights
    R,       ///< recomputes activations that F did not keep, for the following B, or I and W
    E,       ///< embedding forward on this rank's vocabulary shard
    G,       ///< embedding gradient on this rank's vocabulary shard
    S,       ///< output layer forward on this rank's vocabulary shard
    T,       ///< output layer backward on this rank's vocabulary shard
    Reduce,  ///< adds up the two gradients of a tied weight
    Report,  ///< this rank's part of the gradient norm
    Update,  ///< optimizer step
};

/// Properties of a kind of pass, as a table in place of switches over kinds.
struct OpTraits {
    std::string_view name;  ///< in schedule files, traces and messages
    bool has_stage;   ///< F B I W R belong to a stage; E G S T to the vocabulary shard of the rank
    bool vocabulary;  ///< E G S T
    bool of_step;     ///< once per step, appended by lowering, never written by a schedule
};

inline constexpr std::array<OpTraits, 12> kOpTraits{{
    {"F", true, false, false},
    {"B", true, false, false},
    {"I", true, false, false},
    {"W", true, false, false},
    {"R", true, false, false},
    {"E", false, true, false},
    {"G", false, true, false},
    {"S", false, true, false},
    {"T", false, true, false},
    {"Reduce", false, false, true},
    {"Report", false, false, true},
    {"Update", false, false, true},
}};

[[nodiscard]] constexpr const OpTraits& traits(Op op) {
    return kOpTraits[static_cast<size_t>(op)];
}

/// One pass of a rank's list.
struct Pass {
    Op op = Op::F;            ///< what it computes
    uint16_t stage = 0;       ///< global stage index; 0 where traits(op).has_stage is false
    uint32_t microbatch = 0;  ///< 0-based; 0 where traits(op).of_step is true
    /// This pass and the next one of the rank are an overlapped pair: a forward and a backward that
    /// a runtime may interleave. Neither may depend on the other.
    bool with_next = false;

    /// Member by member.
    friend bool operator==(const Pass&, const Pass&) = default;
};

/// "2F0" (stage, letter, microbatch), "S3" for passes without a stage, "Update" for passes of the
/// step.
[[nodiscard]] std::string to_string(const Pass& pass);

}  // namespace vocabpipe
