// SPDX-License-Identifier: Apache-2.0
// Streamed edges on CUDA devices: boundaries travel by pieces, and streams wait for the rows that
// they use and for no others. The bits of a single rank on the same kind of device.
#include "tests/model/model_cases.hpp"
#include "tests/runtime/cuda_devices.hpp"
#include "tests/support/pipeline_run.hpp"
#include "tests/support/schedule_cases.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/recompute.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

// 28 sequences of 6 tokens: 168 rows in at most 5 pieces, of which the last is no multiple of 16.
constexpr int64_t kStreamSequences = 28;

struct CudaStream {
    ScheduleCase schedule;
    CudaTransport transport = CudaTransport::copies;
    friend void PrintTo(const CudaStream& run, std::ostream* out) {
        PrintTo(run.schedule, out);
        *out << (run.transport == CudaTransport::nccl ? " nccl" : " copies");
    }
};

/// Every family and mode; of transports and 2, 3 or 4 ranks one, or in a full run all.
std::vector<CudaStream> every_stream() {
    std::vector<CudaStream> runs;
    for (const ScheduleCase& c : every_schedule(std::array{2, 3, 4})) {
        for (const CudaTransport transport : {CudaTransport::copies, CudaTransport::nccl}) {
            const bool nccl = transport == CudaTransport::nccl;
            if (nccl && c.ranks > gpus_for_nccl()) continue;
            const size_t cell = c.turn / 3;
            if (!full_run() && (c.turn % 3 != cell % 3 || nccl != (cell % 2 == 1))) continue;
            runs.push_back({c, transport});
        }
    }
    return runs;
}

class CudaStreams : public ::testing::TestWithParam<CudaStream> {
protected:
    void SetUp() override {
        if (const std::string reason = why_no_cuda(); !reason.empty()) GTEST_SKIP() << reason;
    }
};

TEST_P(CudaStreams, LeaveTheBitsOfASingleRankOnTheDevice) {
    const auto& [c, transport] = GetParam();
    StepCase step = step_cases(c, 1).front();
    step.sequences = kStreamSequences;
    const Schedule schedule = schedule_of(c, step);
    const int layers = std::max(1, schedule.stages + (c.turn % 2 == 0 ? 1 : -1));
    const ModelConfig config = tiny_gpt(layers, step);
    const ModelPartition partition = even_partition(config, schedule, kStreamSequences);
    const Batch batch = random_batch(config, step.microbatches, kStreamSequences, 3);
    Gradients expected;
    {
        const std::unique_ptr<Device> device = single_rank_device(transport, c.ranks);
        expected = run_single_rank(config, partition, schedule, batch, 7, *device);
    }
    World world = World::threads(c.ranks, {.timeout_seconds = 30});
    for (const int pieces : {2, 5}) {
        EXPECT_EQ(
            first_difference(expected,
                             run_pipeline(world, config, partition, schedule, batch, 7,
                                          {.pieces = pieces, .make_device = devices(transport)})),
            "")
            << pieces << " pieces";
    }
}

INSTANTIATE_TEST_SUITE_P(Matrix, CudaStreams, ::testing::ValuesIn(every_stream()),
                         [](const auto& info) {
                             return test_name(info.param.schedule) +
                                    (info.param.transport == CudaTransport::nccl ? "_nccl"
                                                                                 : "_copies");
                         });

}  // namespace
}  // namespace vocabpipe::testing
