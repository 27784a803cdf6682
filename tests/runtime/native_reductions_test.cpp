// SPDX-License-Identifier: Apache-2.0
// --reduction native on hosts, whose transports add partials up in rank order and in fp32, too: the
// same bits as ordered reductions, by another way.
#include "tests/support/pipeline_run.hpp"
#include "tests/support/schedule_cases.hpp"
#include "vocabpipe/make_schedule.hpp"

#include <gtest/gtest.h>

#include <array>

namespace vocabpipe::testing {
namespace {

TEST(NativeReductions, GiveTheBitsOfOrderedOnesBetweenHosts) {
    for (const char* family : {"1f1b", "v-half", "interleaved"}) {
        for (const VocabMode mode : kShardedModes) {
            for (const DType type : {DType::fp32, DType::bf16}) {
                for (const int64_t vocab_size : {53, 2}) {
                    const StepCase step{
                        .microbatches = 4, .vocab_size = vocab_size, .dtype = type, .tied = true};
                    const Schedule schedule =
                        schedule_of({.family = family, .mode = mode, .ranks = 3}, step);
                    const ModelConfig config = tiny_gpt(schedule.stages, step);
                    const Batch batch = random_batch(config, 4, 2, 5);
                    const ModelPartition partition = even_partition(config, schedule, 2);
                    World world = World::threads(3, {.timeout_seconds = 30});
                    const auto run = [&](Reductions reductions) {
                        return run_pipeline(world, config, partition, schedule, batch, 7,
                                            {.reductions = reductions});
                    };
                    EXPECT_EQ(first_difference(run(Reductions::ordered), run(Reductions::native)),
                              "")
                        << family << " " << to_string(mode) << " V=" << vocab_size;
                }
            }
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
