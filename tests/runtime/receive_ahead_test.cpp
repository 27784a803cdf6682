// SPDX-License-Identifier: Apache-2.0
// Receives posted early: the same bits, and no rank waits for ever.
#include "tests/support/pipeline_run.hpp"
#include "tests/support/schedule_cases.hpp"
#include "vocabpipe/make_schedule.hpp"

#include <gtest/gtest.h>

namespace vocabpipe::testing {
namespace {

TEST(ReceiveAhead, LeavesTheBits) {
    const StepCase step{.microbatches = 6, .vocab_size = 53, .tied = true};
    for (const char* family : {"gpipe", "1f1b", "zb-v", "interleaved"}) {
        for (const VocabMode mode : {VocabMode::none, VocabMode::one_barrier}) {
            const Schedule schedule =
                schedule_of({.family = family, .mode = mode, .ranks = 3}, step);
            const ModelConfig config = tiny_gpt(schedule.stages, step);
            const Batch batch = random_batch(config, step.microbatches, 2, 5);
            const ModelPartition partition = even_partition(config, schedule, 2);
            World world = World::threads(3, {.timeout_seconds = 30});
            const auto run = [&](int receive_ahead) {
                return run_pipeline(world, config, partition, schedule, batch, 7,
                                    {.receive_ahead = receive_ahead});
            };
            const Gradients expected = run(1);
            for (const int receive_ahead : {2, 4, kAsSoonAsSent}) {
                EXPECT_EQ(first_difference(expected, run(receive_ahead)), "")
                    << family << " " << to_string(mode) << " ahead " << receive_ahead;
            }
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
