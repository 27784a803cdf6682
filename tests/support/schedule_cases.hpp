// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/model_config.hpp"

#include <array>
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe::testing {

inline constexpr std::array kEveryVocabMode{VocabMode::none, VocabMode::redistributed,
                                            VocabMode::interlaced, VocabMode::one_barrier,
                                            VocabMode::two_barriers};
/// The modes that shard the vocabulary.
inline constexpr std::array kShardedModes{VocabMode::interlaced, VocabMode::one_barrier,
                                          VocabMode::two_barriers};

/// Letters, digits and underscores of a name, as GoogleTest wants them.
[[nodiscard]] std::string test_name(std::string_view text);

/// A cell of the matrix: every built-in family in every vocabulary mode.
struct ScheduleCase {
    std::string family;
    VocabMode mode = VocabMode::none;
    int ranks = 1;
    size_t turn = 0;  ///< position in the list: slices of different cells start elsewhere
    friend void PrintTo(const ScheduleCase& c, std::ostream* out) {
        *out << c.family << " " << to_string(c.mode) << " p=" << c.ranks;
    }
};
[[nodiscard]] std::vector<ScheduleCase> every_schedule(std::span<const int> ranks);
/// "zb_h1_one_barrier_p4".
[[nodiscard]] std::string test_name(const ScheduleCase& c);

/// What else a step depends on.
struct StepCase {
    int microbatches = 1;
    int chunks = 0;  ///< 0: the family's own
    int64_t vocab_size = 53;
    DType dtype = DType::fp32;
    bool tied = false;
    bool loss_terms = false;  ///< label smoothing and z-loss
    int64_t sequences = 1;
    friend std::ostream& operator<<(std::ostream& out, const StepCase& s);
};

/// Cases that take every value of every field at least once; in a full run() the product of all.
/// Microbatches: fewer than ranks, as many, more, and no multiple; vocabularies: divisible by p, by
/// no p, fewer rows than ranks.
[[nodiscard]] std::vector<StepCase> step_cases(const ScheduleCase& c, size_t slice);

/// A transformer of `num_layers` layers in which gradients of every tensor are well away from 0.
[[nodiscard]] ModelConfig tiny_gpt(int num_layers, const StepCase& step, int64_t hidden_size = 16);

/// The same with rotary positions and this many depths of multi-token prediction.
[[nodiscard]] ModelConfig tiny_predicting(int num_layers, const StepCase& step, int depths);

using vocabpipe::make_schedule;
/// The schedule of a cell for one step.
[[nodiscard]] Schedule schedule_of(const ScheduleCase& c, const StepCase& step);

}  // namespace vocabpipe::testing
