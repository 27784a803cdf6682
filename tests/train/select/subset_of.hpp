// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/files/subset_file.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe::testing {

/// A subset file of these samples.
inline void write_subset_file(const std::string& path, const Corpus& corpus,
                              const std::vector<int64_t>& chosen) {
    World::threads(1, {.timeout_seconds = 30}).run([&](Communicator& world) {
        SubsetWriter writer(world, path,
                            {.corpus = corpus, .count = std::ssize(chosen), .provenance = {}});
        writer.write(0, chosen);
        writer.publish();
    });
}

}  // namespace vocabpipe::testing
