// SPDX-License-Identifier: Apache-2.0
#include "tests/support/schedule_cases.hpp"
#include "tests/support/full_run.hpp"

#include <algorithm>
#include <cctype>
#include <set>

namespace vocabpipe::testing {

namespace {

std::vector<int> microbatch_counts(int ranks) {
    std::set<int> counts{1, 2, ranks - 1, ranks, 2 * ranks + 1};
    counts.erase(0);
    return {counts.begin(), counts.end()};
}

std::vector<int> chunk_counts(const std::string& family) {
    return generator(family).any_chunks ? std::vector{0, 1, 3} : std::vector{0};
}

}  // namespace

std::string test_name(std::string_view text) {
    std::string name(text);
    std::replace_if(
        name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
    return name;
}

std::string test_name(const ScheduleCase& c) {
    return test_name(c.family) + "_" + test_name(to_string(c.mode)) + "_p" +
           std::to_string(c.ranks);
}

std::vector<ScheduleCase> every_schedule(std::span<const int> ranks) {
    std::vector<ScheduleCase> all;
    for (const Generator& family : generators()) {
        for (const VocabMode mode : kEveryVocabMode) {
            for (const int p : ranks) {
                all.push_back({std::string(family.name), mode, p, all.size()});
            }
        }
    }
    return all;
}

std::ostream& operator<<(std::ostream& out, const StepCase& s) {
    return out << "m=" << s.microbatches << " v=" << s.chunks << " V=" << s.vocab_size
               << (s.dtype == DType::bf16 ? " bf16" : " fp32") << (s.tied ? " tied" : " untied")
               << (s.loss_terms ? " smoothing and z-loss" : "") << " s=" << s.sequences;
}

std::vector<StepCase> step_cases(const ScheduleCase& c, size_t slice) {
    const std::vector<int> counts = microbatch_counts(c.ranks);
    const std::vector<int> chunks = chunk_counts(c.family);
    constexpr std::array<int64_t, 3> kVocabularies{53, 3, 48};
    constexpr std::array kTypes{DType::fp32, DType::bf16};
    // Digits of a number whose places have these many values.
    const auto step = [&](size_t m, size_t v, size_t rows, size_t bits) {
        return StepCase{.microbatches = counts[m % counts.size()],
                        .chunks = chunks[v % chunks.size()],
                        .vocab_size = kVocabularies[rows % kVocabularies.size()],
                        .dtype = kTypes[bits % 2],
                        .tied = bits / 2 % 2 == 1,
                        .loss_terms = bits / 4 % 2 == 1,
                        .sequences = 1 + static_cast<int64_t>((m + rows + bits) % 3)};
    };
    std::vector<StepCase> all;
    if (!full_run()) {
        // Largest count first: it has a steady state. 5 of 8 is a step through all bits.
        for (size_t i = 0; i < slice; ++i) {
            const size_t turn = i + c.turn;
            all.push_back(step(counts.size() - 1 - i % counts.size(), turn, turn + turn / 3,
                               5 * turn + turn / 8));
        }
        return all;
    }
    for (size_t m = 0; m < counts.size(); ++m) {
        for (size_t v = 0; v < chunks.size(); ++v) {
            for (size_t rows = 0; rows < kVocabularies.size(); ++rows) {
                for (size_t bits = 0; bits < 8; ++bits) all.push_back(step(m, v, rows, bits));
            }
        }
    }
    return all;
}

ModelConfig tiny_gpt(int num_layers, const StepCase& step, int64_t hidden_size) {
    ModelConfig config;
    config.num_layers = num_layers;
    config.hidden_size = hidden_size;
    config.ffn_hidden_size = 2 * hidden_size;
    config.num_attention_heads = 2;
    config.seq_length = config.max_position_embeddings = 6;
    config.vocab_size = step.vocab_size;
    config.dtype = step.dtype;
    config.tied = step.tied;
    config.init_std = 0.3F;
    if (step.loss_terms) {
        config.label_smoothing = 0.1F;
        config.z_loss = 0.01F;
    }
    return config;
}

ModelConfig tiny_predicting(int num_layers, const StepCase& step, int depths) {
    ModelConfig config = tiny_gpt(num_layers, step);
    config.learned_positions = false;
    config.mtp_num_layers = depths;
    return config;
}

Schedule schedule_of(const ScheduleCase& c, const StepCase& step) {
    return make_schedule(c.family, {.ranks = c.ranks,
                                    .microbatches = step.microbatches,
                                    .vocab_mode = c.mode,
                                    .vocab_size = step.vocab_size,
                                    .rule = {.chunks = step.chunks}});
}

}  // namespace vocabpipe::testing
