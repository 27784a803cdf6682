// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/transport/shared_memory/segment.hpp"

#include "vocabpipe/error.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <new>

namespace vocabpipe::shared_memory {

namespace {

constexpr size_t kRingBytes = size_t{256} << 10;
constexpr size_t kLeastRingBytes = size_t{4} << 10;
constexpr size_t kMostBytes = size_t{32} << 20;  // half of /dev/shm in containers by default
constexpr int kUsedChannels = kChannels - 1;     // numbered from 1
constexpr size_t kPage = 4096;

}  // namespace

// --- layout --------------------------------------------------------------------------------------

struct Segment::Header {
    enum State : int { fine, being_written, aborted };
    alignas(kLine) std::atomic<int> state{fine};
    std::array<char, 1024> reason{};
};

namespace {
constexpr size_t kHeaderBytes = kPage;
}

SegmentLayout::SegmentLayout(int ranks, size_t ring_bytes)
    : ranks_(ranks), ring_bytes_(ring_bytes == 0 ? kRingBytes : ring_bytes) {
    if (ranks < 2) {
        throw UsageError("shared memory: " + std::to_string(ranks) + " ranks; must be at least 2");
    }
    if (ring_bytes == 0) {
        while (ring_bytes_ > kLeastRingBytes && bytes() > kMostBytes) ring_bytes_ /= 2;
    }
    if (ring_bytes_ < kLeastRingBytes || !std::has_single_bit(ring_bytes_)) {
        throw UsageError("shared memory: rings of " + std::to_string(ring_bytes_) +
                         " bytes; must be a power of two and at least " +
                         std::to_string(kLeastRingBytes));
    }
}

size_t SegmentLayout::rings() const {
    return static_cast<size_t>(ranks_) * static_cast<size_t>(ranks_ - 1) * kUsedChannels;
}

size_t SegmentLayout::number(int source, int destination, Channel channel) const {
    const int pair = source * (ranks_ - 1) + destination - (destination > source ? 1 : 0);
    return static_cast<size_t>(pair) * kUsedChannels + static_cast<size_t>(channel) - 1;
}

size_t SegmentLayout::counters(int source, int destination, Channel channel) const {
    return kHeaderBytes + number(source, destination, channel) * sizeof(RingCounters);
}

size_t SegmentLayout::ring(int source, int destination, Channel channel) const {
    const size_t counters = (rings() * sizeof(RingCounters) + kPage - 1) / kPage * kPage;
    return kHeaderBytes + counters + number(source, destination, channel) * ring_bytes_;
}

size_t SegmentLayout::bytes() const {
    return ring(ranks_ - 1, ranks_ - 2, static_cast<Channel>(kUsedChannels)) + ring_bytes_;
}

// --- memory --------------------------------------------------------------------------------------

std::shared_ptr<Segment> Segment::create(const SegmentLayout& layout) {
    const std::shared_ptr<Segment> segment(new Segment(Mapping::create(layout.bytes()), layout));
    std::byte* const memory = segment->mapping_->data();
    new (memory) Header;
    for (int source = 0; source < layout.ranks(); ++source) {
        for (int destination = 0; destination < layout.ranks(); ++destination) {
            for (int channel = 1; channel < kChannels && source != destination; ++channel) {
                new (memory + layout.counters(source, destination, static_cast<Channel>(channel)))
                    RingCounters;
            }
        }
    }
    return segment;
}

std::shared_ptr<Segment> Segment::open(const std::string& name, const SegmentLayout& layout) {
    return std::shared_ptr<Segment>(new Segment(Mapping::open(name, layout.bytes()), layout));
}

Segment::Header& Segment::header() const {
    return *std::launder(reinterpret_cast<Header*>(mapping_->data()));
}

RingCounters& Segment::counters(int source, int destination, Channel channel) const {
    return *std::launder(reinterpret_cast<RingCounters*>(
        mapping_->data() + layout_.counters(source, destination, channel)));
}

std::span<std::byte> Segment::ring(int source, int destination, Channel channel) const {
    return {mapping_->data() + layout_.ring(source, destination, channel), layout_.ring_bytes()};
}

// --- abort ---------------------------------------------------------------------------------------

void Segment::abort(const std::string& reason) noexcept {
    Header& shared = header();
    int expected = Header::fine;
    if (!shared.state.compare_exchange_strong(expected, Header::being_written)) return;
    const size_t length = std::min(reason.size(), shared.reason.size() - 1);
    std::memcpy(shared.reason.data(), reason.data(), length);
    shared.reason[length] = '\0';
    shared.state.store(Header::aborted, std::memory_order_release);
}

void Segment::throw_if_aborted() const {
    const Header& shared = header();
    if (shared.state.load(std::memory_order_acquire) != Header::aborted) return;
    throw CommunicationError(shared.reason.data());
}

}  // namespace vocabpipe::shared_memory
