// SPDX-License-Identifier: Apache-2.0
// Under mpirun: loss and every gradient of the processes' run equal those of the single-rank oracle
// bit for bit, and so those of a world of threads.
#include "tests/support/full_run.hpp"
#include "tests/support/pipeline_run.hpp"
#include "tests/support/schedule_cases.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace vocabpipe::testing {
namespace {

class MpiEquality : public ::testing::TestWithParam<ScheduleCase> {
protected:
    /// The cell of the matrix with as many ranks as mpirun started.
    [[nodiscard]] ScheduleCase cell() const {
        ScheduleCase c = GetParam();
        c.ranks = world_.size();
        return c;
    }

    void expect_equality(const std::vector<StepCase>& all, int64_t hidden_size) {
        const ScheduleCase c = cell();
        struct Setup {
            ModelConfig config;
            Schedule schedule;
            ModelPartition partition;
            Batch batch;
        };
        const auto setup_of = [&](const StepCase& step) {
            Setup s;
            s.schedule = schedule_of(c, step);
            s.config = tiny_gpt(s.schedule.stages, step, hidden_size);
            s.partition = even_partition(s.config, s.schedule, step.sequences);
            s.batch = random_batch(s.config, step.microbatches, step.sequences,
                                   static_cast<uint32_t>(step.microbatches));
            return s;
        };
        std::vector<Gradients> actual;
        for (const StepCase& step : all) {
            const Setup s = setup_of(step);
            actual.push_back(run_pipeline(world_, s.config, s.partition, s.schedule, s.batch, 7));
        }
        // All ranks hold all results; each checks a part of them.
        int rank = 0;
        world_.run([&](Communicator& c) { rank = c.rank(); });
        for (size_t i = static_cast<size_t>(rank); i < all.size();
             i += static_cast<size_t>(c.ranks)) {
            const Setup s = setup_of(all[i]);
            const Gradients expected =
                run_single_rank(s.config, s.partition, s.schedule, s.batch, 7);
            ASSERT_EQ(first_difference(expected, actual[i]), "")
                << c.family << " " << to_string(c.mode) << " p=" << c.ranks << " " << all[i];
            expect_something_to_compare(expected, all[i].microbatches);
        }
    }

    World world_ = World::mpi({.timeout_seconds = 30});

private:
    /// Losses and gradients that are 0 or NaN everywhere would be equal, too.
    static void expect_something_to_compare(const Gradients& g, int microbatches) {
        ASSERT_EQ(g.losses.size(), static_cast<size_t>(microbatches));
        for (const double loss : g.losses) EXPECT_TRUE(std::isfinite(loss));
        for (const auto& [name, values] : g.by_name) {
            double squares = 0;
            for (const float v : values) squares += static_cast<double>(v) * v;
            EXPECT_TRUE(std::isfinite(squares) && squares > 0) << name;
        }
    }
};

TEST_P(MpiEquality, LossAndGradientsHaveTheBitsOfTheSingleRankOracle) {
    const ScheduleCase c = cell();
    expect_equality(step_cases(c, c.ranks <= 4 ? 4 : 2), 16);
}

TEST_P(MpiEquality, AndSoWithMessagesTooLongToBeSentBeforeTheirReceive) {
    const int p = world_.size();
    // 12 tokens of 256 values: 12 KiB in fp32, 6 KiB in bf16; Open MPI sends at most 4 KiB eagerly
    // on one host.
    const StepCase wide{.microbatches = p + 1, .vocab_size = 53, .sequences = 2};
    const StepCase narrow{
        .microbatches = p, .vocab_size = 48, .dtype = DType::bf16, .tied = true, .sequences = 2};
    if (full_run()) {
        expect_equality({wide, narrow}, 256);
        return;
    }
    // Expensive: one mode per family, another one for the next family.
    const size_t mode = GetParam().turn % kEveryVocabMode.size();
    const size_t family = GetParam().turn / kEveryVocabMode.size();
    if (family % kEveryVocabMode.size() != mode || p > 4) GTEST_SKIP() << "VOCABPIPE_FULL runs it";
    expect_equality({family % 2 == 0 ? wide : narrow}, 256);
}

INSTANTIATE_TEST_SUITE_P(Mpi, MpiEquality, ::testing::ValuesIn(every_schedule(std::array{0})),
                         [](const auto& info) {
                             return test_name(info.param.family) + "_" +
                                    test_name(to_string(info.param.mode));
                         });

}  // namespace
}  // namespace vocabpipe::testing
