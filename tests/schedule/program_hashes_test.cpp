// SPDX-License-Identifier: Apache-2.0
// Programs do not change unseen: data/program_hashes.txt has their hashes for every family in every
// vocabulary mode. Who means to change them runs this program with VOCABPIPE_WRITE_PROGRAM_HASHES
// set to the file, and says in the commit why they changed.
#include "tests/support/pipeline_run.hpp"
#include "tests/support/schedule_cases.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/model_rank.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

namespace vocabpipe::testing {

namespace {

/// What a line of the file stands for, besides family and mode.
struct Variant {
    const char* name;
    int ranks = 2;
    int microbatches = 2;
    int replicas = 1;
    bool tied = false;
    bool recompute = false;
    bool forward_only = false;
    Reductions reductions = Reductions::ordered;
};

constexpr std::array kVariants{
    Variant{"p2_m5_tied", 2, 5, 1, true},
    Variant{"p2_m2_d3", 2, 2, 3},
    Variant{"p3_m3_d2_tied", 3, 3, 2, true},
    Variant{"p4_m9", 4, 9},
    Variant{"p4_m4_d2", 4, 4, 2},
    Variant{"p4_m6_recompute", 4, 6, 1, false, true},
    Variant{"p4_m5_forward_only", 4, 5, 1, false, false, true},
    Variant{"p4_m4_tied_native", 4, 4, 1, true, false, false, Reductions::native},
    Variant{"p8_m16", 8, 16},
};

std::string hash_of(const std::string& family, VocabMode mode, const Variant& variant) {
    constexpr int64_t kVocabulary = 53;
    Schedule schedule = make_schedule(family, {.ranks = variant.ranks,
                                               .microbatches = variant.microbatches,
                                               .vocab_mode = mode,
                                               .vocab_size = kVocabulary,
                                               .forward_only = variant.forward_only});
    if (variant.recompute) schedule = with_recomputation(std::move(schedule));
    const ModelConfig config = tiny_gpt(
        schedule.stages, {.vocab_size = kVocabulary, .dtype = DType::bf16, .tied = variant.tied});
    ModelPartition partition = even_partition(config, schedule, 2);
    partition.replicas = variant.replicas;
    partition.optimizer = partition.training = !variant.forward_only;
    if (variant.recompute) partition.recompute = Recompute::full;
    TableCosts costs = TableCosts::uniform(variant.ranks, schedule.stages, 1000, 2000, 500);
    costs.slices = variant.replicas;
    const std::vector<Program> programs = lower(schedule, step_sizes(config, partition, schedule),
                                                costs, {.reductions = variant.reductions});
    std::array<char, 24> text{};
    std::snprintf(text.data(), text.size(), "%016llx",
                  static_cast<unsigned long long>(programs.front().hash));
    return text.data();
}

/// "FAMILY MODE VARIANT HASH" lines by their first three words.
std::map<std::string, std::string> recorded_hashes() {
    std::ifstream in(VOCABPIPE_PROGRAM_HASHES);
    std::map<std::string, std::string> hashes;
    std::string family, mode, variant, hash;
    while (in >> family >> mode >> variant >> hash) {
        hashes[family + " " + mode + " " + variant] = hash;
    }
    return hashes;
}

class ProgramHashes : public ::testing::TestWithParam<ScheduleCase> {};

TEST_P(ProgramHashes, AreThoseOfTheFile) {
    const ScheduleCase& c = GetParam();
    const std::map<std::string, std::string> recorded = recorded_hashes();
    const char* write = std::getenv("VOCABPIPE_WRITE_PROGRAM_HASHES");
    std::ofstream out;
    if (write != nullptr) out.open(write, std::ios::app);
    for (const Variant& variant : kVariants) {
        const std::string key =
            c.family + " " + std::string(to_string(c.mode)) + " " + variant.name;
        const std::string hash = hash_of(c.family, c.mode, variant);
        if (write != nullptr) {
            out << key << " " << hash << "\n";
            continue;
        }
        const auto found = recorded.find(key);
        EXPECT_EQ(found == recorded.end() ? "no line" : found->second, hash) << key;
    }
}

INSTANTIATE_TEST_SUITE_P(Every, ProgramHashes, ::testing::ValuesIn(every_schedule(std::array{1})),
                         [](const auto& info) {
                             return test_name(info.param.family) + "_" +
                                    test_name(to_string(info.param.mode));
                         });

}  // namespace

}  // namespace vocabpipe::testing
