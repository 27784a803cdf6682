// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/memory_over_time.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/program.hpp"
#include "vocabpipe/timeline.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

/// A run for pictures and reports: with names instead of programs, so that a run read from a trace
/// file can be shown like one that was just simulated.
struct RecordedRun {
    static constexpr uint32_t kNone = UINT32_MAX;  ///< no number, slice or order

    /// An action that ran.
    struct Slice {
        int64_t begin_ns = 0;         ///< since the first begin of the run
        int64_t end_ns = 0;           ///< since the first begin of the run
        int64_t cpu_ns = 0;           ///< thread CPU time of compute; the duration when simulated
        uint32_t name = 0;            ///< index into names
        uint32_t number = kNone;      ///< microbatch, the digits after the name; kNone: no digits
        uint32_t waited_for = kNone;  ///< slice of the same rank that was the last to let it start
        uint32_t order = kNone;       ///< equal on the ranks of one communication; else kNone
        uint16_t rank = 0;            ///< rank that ran it
        Lane lane = Lane::compute;    ///< lane it ran in
    };
    /// Bytes that come alive or die.
    struct MemoryChange {
        int64_t at_ns = 0;     ///< since the first begin of the run
        uint32_t purpose = 0;  ///< index into purposes
        int64_t bytes = 0;     ///< negative: die
    };

    std::string title;  ///< for people
    /// Nanoseconds of the times below that are one unit of the simulated costs; 0: times are real
    /// nanoseconds.
    int ticks_per_unit = 0;
    int ranks = 0;                      ///< of the world
    Mesh mesh;                          ///< how the ranks divide; pictures group them by it
    int64_t fixed_ns = 0;               ///< of the step, belongs to no slice (Timeline::fixed_ns)
    bool barrier = false;               ///< steps cannot overlap (TimelineSummary::barrier)
    std::vector<std::string> names;     ///< "2F", "S", "send to rank 1 gradient of microbatch "
    std::vector<Slice> slices;          ///< ascending by rank, lane, begin
    std::vector<std::string> purposes;  ///< uses of memory
    std::vector<std::vector<MemoryChange>> memory;  ///< [rank], ascending by time
    std::string costs;  ///< costs of the simulation, for people; empty: measured, or not known
};

/// Records a timeline of `programs`, with its memory_over_time(). `persistent`: by rank, or empty
/// for none. `mesh`: of the programs; by default they are one pipeline.
[[nodiscard]] RecordedRun record(const Timeline& timeline, const std::vector<Program>& programs,
                                 const std::string& title,
                                 std::span<const PersistentBytes> persistent = {},
                                 const std::optional<Mesh>& mesh = std::nullopt);

/// Reads a file that write_chrome_trace() wrote. Throws InputFileError naming the line and column,
/// or the event, that is wrong.
[[nodiscard]] RecordedRun read_chrome_trace(const std::string& path);

/// Writes the run as a Chrome trace, as write_chrome_trace() of a timeline does, without counters:
/// what read_chrome_trace() reads. Written to a temporary name and renamed. Throws OutputFileError.
void write_chrome_trace(const std::string& path, const RecordedRun& run);

/// The same as summarize() of the recorded timeline.
[[nodiscard]] TimelineSummary summarize(const RecordedRun& run);

}  // namespace vocabpipe
