// SPDX-License-Identifier: Apache-2.0
// The buffers of every action and pass, one struct each: lowering writes them and the executor
// reads them.
#pragma once

#include "vocabpipe/program.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace vocabpipe {

// The members of these structs are ids of buffers of the rank's program, in the order in which
// Program::operands stores them; kNoBuffer stands for a buffer that the action does not need. The
// last kOptional ids are not stored where they are kNoBuffer, so that most programs are as they
// would be without them. What a communication does with each of them, on which ranks, is said at
// Do.

/// The buffers that one member of a communication sends and receives.
struct SentAndReceived {
    uint32_t sent = kNoBuffer;
    uint32_t received = kNoBuffer;
};

// --- communication -------------------------------------------------------------------------------

struct SendOperands {
    uint32_t message = kNoBuffer;
    [[nodiscard]] constexpr SentAndReceived moved() const { return {.sent = message}; }
};
struct ReceiveOperands {
    uint32_t message = kNoBuffer;
    [[nodiscard]] constexpr SentAndReceived moved() const { return {.received = message}; }
};
struct BroadcastOperands {
    uint32_t message = kNoBuffer;  ///< read on the root, written elsewhere
    [[nodiscard]] constexpr SentAndReceived moved() const {
        return {.sent = message, .received = message};
    }
};
struct AllGatherOperands {
    uint32_t mine = kNoBuffer;
    uint32_t all = kNoBuffer;  ///< group size times the bytes of `mine`
    [[nodiscard]] constexpr SentAndReceived moved() const {
        return {.sent = mine, .received = all};
    }
};
struct AllToAllOperands {
    uint32_t partial = kNoBuffer;  ///< row blocks of all members
    uint32_t blocks = kNoBuffer;   ///< group size times the member's own row block
    uint32_t whole = kNoBuffer;    ///< of which `partial` is a piece
    static constexpr size_t kOptional = 1;
    [[nodiscard]] constexpr SentAndReceived moved() const {
        return {.sent = partial, .received = blocks};
    }
};
/// For gather, where only the root has a `whole`, and all_gather_v, where every member has one.
struct GatherOperands {
    uint32_t block = kNoBuffer;  ///< none where the root of a gather owns no rows
    uint32_t whole = kNoBuffer;  ///< row blocks of all members
    [[nodiscard]] constexpr SentAndReceived moved() const {
        return {.sent = block, .received = whole};
    }
};
struct NativeReduceOperands {
    uint32_t partial = kNoBuffer;  ///< all rows
    uint32_t sum = kNoBuffer;      ///< of the same size, only on the root
    [[nodiscard]] constexpr SentAndReceived moved() const {
        return {.sent = partial, .received = sum};
    }
};

// --- local actions -------------------------------------------------------------------------------

struct CombineSoftmaxOperands {
    uint32_t statistics = kNoBuffer;      ///< of all shards
    uint32_t factors = kNoBuffer;         ///< none in an evaluation
    uint32_t input_gradient = kNoBuffer;  ///< with one barrier: completed in place
    uint32_t exp_logits = kNoBuffer;      ///< with the logits, where StepSizes::keeps_logits
    static constexpr size_t kOptional = 1;
};
struct OrderedSumOperands {
    uint32_t blocks = kNoBuffer;  ///< added up in group order
    uint32_t sum = kNoBuffer;     ///< in the sum's type
    uint32_t before = kNoBuffer;  ///< `sum` again, which is added to
    static constexpr size_t kOptional = 1;
};

// --- passes --------------------------------------------------------------------------------------

struct ForwardOperands {  ///< F
    uint32_t x = kNoBuffer;
    uint32_t y = kNoBuffer;
    uint32_t saved = kNoBuffer;
    uint32_t recomputed = kNoBuffer;
    uint32_t workspace = kNoBuffer;
    uint32_t embedded = kNoBuffer;  ///< of a stage with depths of multi-token prediction
    static constexpr size_t kOptional = 1;
};
struct RecomputeOperands {  ///< R
    uint32_t x = kNoBuffer;
    uint32_t saved = kNoBuffer;
    uint32_t recomputed = kNoBuffer;
    uint32_t workspace = kNoBuffer;
};
struct BackwardOperands {  ///< B
    uint32_t dy = kNoBuffer;
    uint32_t x = kNoBuffer;
    uint32_t saved = kNoBuffer;
    uint32_t recomputed = kNoBuffer;
    uint32_t dx = kNoBuffer;
    uint32_t workspace = kNoBuffer;
    uint32_t embedded_gradient = kNoBuffer;  ///< of a stage with depths
    static constexpr size_t kOptional = 1;
};
struct InputBackwardOperands {  ///< I
    uint32_t dy = kNoBuffer;
    uint32_t x = kNoBuffer;
    uint32_t saved = kNoBuffer;
    uint32_t recomputed = kNoBuffer;
    uint32_t dx = kNoBuffer;
    uint32_t for_weight = kNoBuffer;
    uint32_t workspace = kNoBuffer;
    uint32_t embedded_gradient = kNoBuffer;  ///< of a stage with depths
    static constexpr size_t kOptional = 1;
};
struct WeightBackwardOperands {  ///< W
    uint32_t x = kNoBuffer;
    uint32_t saved = kNoBuffer;
    uint32_t recomputed = kNoBuffer;
    uint32_t for_weight = kNoBuffer;
    uint32_t workspace = kNoBuffer;
};
struct EmbedOperands {  ///< E
    uint32_t embedded = kNoBuffer;
};
struct EmbedGradientOperands {  ///< G
    uint32_t gradient = kNoBuffer;
    uint32_t of_depths = kNoBuffer;  ///< that of the depths of multi-token prediction
    static constexpr size_t kOptional = 1;
};
struct ScoreOperands {  ///< S
    uint32_t x = kNoBuffer;
    uint32_t exp_logits = kNoBuffer;
    uint32_t statistics = kNoBuffer;
    uint32_t input_gradient = kNoBuffer;  ///< with one barrier
    uint32_t workspace = kNoBuffer;
};
struct OutputBackwardOperands {  ///< T
    uint32_t x = kNoBuffer;
    uint32_t exp_logits = kNoBuffer;
    uint32_t factors = kNoBuffer;
    uint32_t input_gradient = kNoBuffer;  ///< with two barriers
    uint32_t workspace = kNoBuffer;
};
struct ReduceTiedOperands {         ///< Reduce
    uint32_t received = kNoBuffer;  ///< the other rank's half; none where one rank has both
};
struct ReportOperands {  ///< Report
    uint32_t report = kNoBuffer;
};
struct UpdateOperands {            ///< Update
    uint32_t reports = kNoBuffer;  ///< of all ranks
};

// --- storing -------------------------------------------------------------------------------------

inline constexpr size_t kMostOperands = 8;

template <typename T>
inline constexpr size_t kOperandCount = sizeof(T) / sizeof(uint32_t);

/// How many of the ids are stored even if they are kNoBuffer: all but the last T::kOptional.
template <typename T>
inline constexpr size_t kAlwaysStored = kOperandCount<T>;
template <typename T>
requires requires {
    T::kOptional;
}
inline constexpr size_t kAlwaysStored<T> = kOperandCount<T> - T::kOptional;

/// A struct of buffer ids and nothing else.
template <typename T>
concept Operands = std::is_standard_layout_v<T> && std::is_trivially_copyable_v<T> &&
                       sizeof(T) == kOperandCount<T> * sizeof(uint32_t) &&
                   kOperandCount<T> <= kMostOperands;

/// The ids as Program::operands stores them.
template <Operands T>
[[nodiscard]] constexpr std::array<uint32_t, kOperandCount<T>> stored(const T& operands) {
    return std::bit_cast<std::array<uint32_t, kOperandCount<T>>>(operands);
}

/// The reverse of stored(); programs made elsewhere may leave out the last ids.
template <Operands T>
[[nodiscard]] constexpr T read_operands(std::span<const uint32_t> stored) {
    std::array<uint32_t, kOperandCount<T>> all;
    all.fill(kNoBuffer);
    std::copy_n(stored.begin(), std::min(stored.size(), all.size()), all.begin());
    return std::bit_cast<T>(all);
}

}  // namespace vocabpipe
