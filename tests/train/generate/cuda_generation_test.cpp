// SPDX-License-Identifier: Apache-2.0
// Generation on CUDA devices: the host's text.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/model/model_cases.hpp"
#include "tests/runtime/cuda_devices.hpp"
#include "vocabpipe/text_generator.hpp"

namespace vocabpipe::testing {
namespace {

using MakeDevice = std::function<std::unique_ptr<Device>()>;

/// The likeliest continuation of three tokens, of fp32 models: no two logits are nearly equal.
std::vector<int32_t> continuation(const ModelConfig& config, int ranks, const MakeDevice& make) {
    std::vector<int32_t> text;
    World::threads(ranks, {.timeout_seconds = 60}).run([&](Communicator& world) {
        const std::unique_ptr<Device> device = make();
        TextGenerator generator(
            world, *device, {.model = config, .ranks = ranks, .operators = &device->operators()});
        generator.model().initialise(generator.context(), 7);
        std::vector<int32_t> ids{3, 1, 4};
        for (int i = 0; i < 12; ++i) {
            generator.read(ids);
            ids.push_back(generator.next({.temperature = 0}, 0));
        }
        if (world.rank() == 0) text = ids;
    });
    return text;
}

TEST(CudaGeneration, SaysWhatTheHostSays) {
    if (const std::string reason = why_no_cuda(); !reason.empty()) GTEST_SKIP() << reason;
    for (const char* family : {"gpt2", "gemma2", "qwen3"}) {
        // The context of 10 tokens overflows twice.
        const ModelConfig config = small_family(family, 3, 10, 29, true);
        const auto host = continuation(config, 1, [] { return make_host_device(); });
        for (const int ranks : {1, 2}) {
            const auto cuda = continuation(config, ranks, [] {
                return make_cuda_device({.transport = CudaTransport::copies});
            });
            EXPECT_EQ(cuda, host) << family << " on " << ranks;
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
