// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/shared_memory/ring.hpp"
#include "src/runtime/transport/transport.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace vocabpipe::shared_memory {

/// Where things are in a segment: pure.
class SegmentLayout {
public:
    /// A ring per (source, destination, channel), in bytes a power of two of at least 4096; 0: 256
    /// KiB, and less where all of them would take more than 32 MiB. Throws UsageError.
    explicit SegmentLayout(int ranks, size_t ring_bytes = 0);

    [[nodiscard]] int ranks() const { return ranks_; }
    [[nodiscard]] size_t ring_bytes() const { return ring_bytes_; }
    /// Of the whole segment.
    [[nodiscard]] size_t bytes() const;
    /// Where the counters of a ring begin.
    [[nodiscard]] size_t counters(int source, int destination, Channel channel) const;
    /// Where its bytes begin.
    [[nodiscard]] size_t ring(int source, int destination, Channel channel) const;

private:
    [[nodiscard]] size_t number(int source, int destination, Channel channel) const;
    [[nodiscard]] size_t rings() const;
    int ranks_;
    size_t ring_bytes_;
};

/// Memory that the ranks of one host share. Whoever created it must remove() its name once all have
/// opened it; the memory itself goes with the last of them, however that ends.
class Segment {
public:
    /// A new one under a name of its own, all of whose bytes exist: writing to it cannot fail
    /// later. Throws CommunicationError: /dev/shm is full or missing, with bytes and remedy.
    [[nodiscard]] static std::shared_ptr<Segment> create(const SegmentLayout& layout);
    /// The one that another rank has created. Throws CommunicationError.
    [[nodiscard]] static std::shared_ptr<Segment> open(const std::string& name,
                                                       const SegmentLayout& layout);
    ~Segment();  ///< removes the name, too, where this rank has created it
    Segment(const Segment&) = delete;
    Segment& operator=(const Segment&) = delete;

    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] const SegmentLayout& layout() const { return layout_; }
    void remove() noexcept;

    [[nodiscard]] RingCounters& counters(int source, int destination, Channel channel) const;
    [[nodiscard]] std::span<std::byte> ring(int source, int destination, Channel channel) const;

    /// Tells all that have it open that a rank has failed; the first reason stays.
    void abort(const std::string& reason) noexcept;
    /// Throws CommunicationError if one has.
    void throw_if_aborted() const;

private:
    struct Header;
    Segment(std::string name, const SegmentLayout& layout);
    void map(int file);
    [[nodiscard]] Header& header() const;

    std::string name_;
    SegmentLayout layout_;
    bool named_ = false;  ///< the name is there, and this rank's to remove
    std::byte* memory_ = nullptr;
};

}  // namespace vocabpipe::shared_memory
