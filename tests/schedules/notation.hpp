// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/make_schedule.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe::testing {

/// What a token such as S3 stands for.
enum class Unit {
    plain,    ///< S3: the pass S of microbatch 3
    delayed,  ///< S3: T of the microbatch before, then S (each if the microbatch exists)
    joint,    ///< S3: S and T of microbatch 3
};

struct Notation {
    int stage = 0;         ///< of tokens without a stage, such as F3
    int first = 0;         ///< number of the first microbatch: 0 or 1
    int microbatches = 0;  ///< only for Unit::delayed
    Unit unit = Unit::plain;
};

/// Passes from text: blanks or '+' between tokens, "2F0" with and "F0" without a stage; IF and IB
/// are other names of E and G, ST3 is S3 T3; "(0F1;3B0)" is an overlapped pair.
[[nodiscard]] std::vector<Pass> passes_from(std::string_view text, const Notation& notation = {});

/// "0F0 S0 T0", as in failure messages.
[[nodiscard]] std::string text_of(const std::vector<Pass>& passes);

/// Without the passes of the vocabulary.
[[nodiscard]] std::vector<Pass> transformer_passes(const std::vector<Pass>& passes);

/// Most microbatches between F and B at one time.
[[nodiscard]] int peak_in_flight(const std::vector<Pass>& passes);

/// A schedule of F, B, I, W lists in text; no vocabulary at all, stage s on rank_of_stage[s].
[[nodiscard]] Schedule schedule_from(const std::vector<std::string>& lists, int microbatches,
                                     const std::vector<int>& rank_of_stage);

inline constexpr VocabMode kEveryMode[] = {VocabMode::none, VocabMode::redistributed,
                                           VocabMode::interlaced, VocabMode::one_barrier,
                                           VocabMode::two_barriers};

}  // namespace vocabpipe::testing
