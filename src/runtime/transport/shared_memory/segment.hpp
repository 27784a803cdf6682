// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/shared_memory/mapping.hpp"
#include "src/runtime/transport/shared_memory/ring.hpp"
#include "src/runtime/transport/transport.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace vocabpipe::shared_memory {

/// Positions in a segment, computed from its parameters only.
class SegmentLayout {
public:
    /// A ring per (source, destination, channel), in bytes a power of two of at least 4096; 0: 256
    /// KiB, or less if all rings together would exceed 32 MiB. Throws UsageError.
    explicit SegmentLayout(int ranks, size_t ring_bytes = 0);

    [[nodiscard]] int ranks() const { return ranks_; }
    [[nodiscard]] size_t ring_bytes() const { return ring_bytes_; }
    /// Bytes of the whole segment.
    [[nodiscard]] size_t bytes() const;
    /// Position of the counters of a ring.
    [[nodiscard]] size_t counters(int source, int destination, Channel channel) const;
    /// Position of the bytes of a ring.
    [[nodiscard]] size_t ring(int source, int destination, Channel channel) const;

private:
    [[nodiscard]] size_t number(int source, int destination, Channel channel) const;
    [[nodiscard]] size_t rings() const;
    int ranks_;
    size_t ring_bytes_;
};

/// Memory that the ranks of one host share. Its creator must remove() the name once all have opened
/// it; the memory is freed with the last of them, however that one ends.
class Segment {
public:
    /// Makes a segment as Mapping::create().
    [[nodiscard]] static std::shared_ptr<Segment> create(const SegmentLayout& layout);
    /// Opens a segment that another rank has created, as Mapping::open().
    [[nodiscard]] static std::shared_ptr<Segment> open(const std::string& name,
                                                       const SegmentLayout& layout);
    Segment(const Segment&) = delete;
    Segment& operator=(const Segment&) = delete;

    [[nodiscard]] const std::string& name() const { return mapping_->name(); }
    [[nodiscard]] const SegmentLayout& layout() const { return layout_; }
    void remove() noexcept { mapping_->remove(); }

    [[nodiscard]] RingCounters& counters(int source, int destination, Channel channel) const;
    [[nodiscard]] std::span<std::byte> ring(int source, int destination, Channel channel) const;

    /// Tells all ranks of the segment that a rank has failed; the first reason is kept.
    void abort(const std::string& reason) noexcept;
    /// Throws CommunicationError if a rank has failed.
    void throw_if_aborted() const;

private:
    struct Header;
    Segment(std::unique_ptr<Mapping> mapping, const SegmentLayout& layout)
        : mapping_(std::move(mapping)), layout_(layout) {}
    [[nodiscard]] Header& header() const;

    std::unique_ptr<Mapping> mapping_;
    SegmentLayout layout_;
};

}  // namespace vocabpipe::shared_memory
