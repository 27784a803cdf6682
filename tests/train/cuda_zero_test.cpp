// SPDX-License-Identifier: Apache-2.0
// ZeRO stages 2 and 3 on CUDA devices: the bits of stage 1 where every gradient is added up once,
// and the host's curve where it is added up after each use.
#include "tests/model/model_cases.hpp"
#include "tests/runtime/cuda_devices.hpp"
#include "tests/train/training_run.hpp"

#include <gtest/gtest.h>

#include <ostream>
#include <string>

namespace vocabpipe::testing {
namespace {

struct Case {
    CudaTransport transport = CudaTransport::copies;
    int pipeline = 1;
    const char* schedule = "interleaved";

    [[nodiscard]] std::string name() const {
        return std::string(transport == CudaTransport::nccl ? "nccl" : "copies") + "_p" +
               std::to_string(pipeline) + "_" +
               (schedule == std::string("zb-v") ? "zbv" : schedule);
    }
    friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name(); }
};

class CudaZero : public CudaTestWithParam<Case> {};

TEST_P(CudaZero, HasTheBitsOfStage1AndFollowsTheHost) {
    const Case& of = GetParam();
    if (of.transport == CudaTransport::nccl && gpus_for_nccl() < 2 * of.pipeline) {
        GTEST_SKIP() << "NCCL needs a GPU per rank";
    }
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        TrainingSetup setup =
            setup_on_mesh(of.schedule, VocabMode::one_barrier, {of.pipeline, 2}, 29,
                          [](int layers) { return small_family("gpt2", layers, 8, 29, false); });
        setup.config.dtype = dtype;
        setup.steps = 3;
        const Training host = train_on_threads(setup);
        setup.make_device = devices(of.transport);
        const Training expected = train_on_threads(setup);
        for (const int stage : {2, 3}) {
            SCOPED_TRACE(stage);
            setup.zero = {.stage = stage, .reshard_after = ReshardAfter::step};
            EXPECT_EQ(first_difference(expected, train_on_threads(setup)), "");
            setup.zero.reshard_after = ReshardAfter::use;
            const Training each_use = train_on_threads(setup);
            for (size_t step = 0; step < host.losses.size(); ++step) {
                EXPECT_NEAR(each_use.losses[step], host.losses[step],
                            dtype == DType::fp32 ? 1e-4 : 3e-2);
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Runs, CudaZero,
                         ::testing::Values(Case{}, Case{.pipeline = 2},
                                           Case{.pipeline = 2, .schedule = "zb-v"},
                                           Case{.transport = CudaTransport::nccl},
                                           Case{.transport = CudaTransport::nccl, .pipeline = 2}),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace vocabpipe::testing
