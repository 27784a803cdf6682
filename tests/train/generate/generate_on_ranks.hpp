// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "vocabpipe/device.hpp"
#include "vocabpipe/text_generator.hpp"
#include "vocabpipe/world.hpp"

namespace vocabpipe::testing {

/// Seed of the weights that generators begin with.
inline constexpr uint64_t kSeed = 7;

/// What the ranks of one generation do with their generators.
using OnRank = std::function<void(Communicator&, TextGenerator&)>;

/// Runs the ranks of the options' mesh as threads, on the host.
inline void generate_on_ranks(const TextGeneratorOptions& options, const OnRank& body) {
    World::threads(options.mesh().size(), {.timeout_seconds = 60}).run([&](Communicator& world) {
        const std::unique_ptr<Device> device = make_host_device();
        TextGenerator generator(world, *device, options);
        generator.model().initialise(generator.context(), kSeed);
        body(world, generator);
    });
}

/// Logits of the whole vocabulary, on every rank.
inline std::vector<float> all_logits(Communicator& world, const LogitsShard& mine) {
    std::vector<float> all;
    for (const std::vector<std::byte>& part : world.all_gather(std::as_bytes(mine.logits))) {
        const auto* const values = reinterpret_cast<const float*>(part.data());
        all.insert(all.end(), values, values + part.size() / sizeof(float));
    }
    return all;
}

}  // namespace vocabpipe::testing
