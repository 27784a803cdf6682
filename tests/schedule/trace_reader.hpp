// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/program.hpp"
#include "vocabpipe/timeline.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace vocabpipe::testing {

/// A Chrome trace, read back. Times in nanoseconds.
struct Trace {
    struct Slice {
        std::string name, category, waited_for;
        int rank = 0;
        int track = 0;
        int64_t begin = 0;
        int64_t end = 0;
        uint32_t action = 0;
        uint32_t order = 0;
        int64_t cpu = 0;
    };
    struct FlowEnd {
        bool begins = false;
        uint32_t id = 0;
        int rank = 0;
        int track = 0;
        int64_t at = 0;
    };
    struct Counter {
        std::string name;
        int rank = 0;
        int64_t at = 0;
        int64_t value = 0;
    };
    std::string title;
    std::vector<Slice> slices;
    std::vector<FlowEnd> flow_ends;
    std::vector<Counter> counters;
    std::map<int, std::string> processes;               ///< by rank
    std::map<std::pair<int, int>, std::string> tracks;  ///< by rank and track
};

/// Writes the timeline to a temporary file, reads it back and removes it; throws on what is no JSON
/// and on events of an unknown kind.
[[nodiscard]] Trace written_and_read_back(const Timeline& timeline,
                                          const std::vector<Program>& programs,
                                          const std::string& title);

/// GoogleTest assertions on what every trace of complete programs has: one process per rank, every
/// action once under its name, slices that never overlap on one track, a flow per message from the
/// sender's slice to the receiver's, counters that end at 0.
void expect_sound_trace(const Trace& trace, const Timeline& timeline,
                        const std::vector<Program>& programs);

}  // namespace vocabpipe::testing
