// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/symmetric/shared_peers.hpp"

#include <atomic>
#include <cstring>
#include <new>
#include <utility>

namespace vocabpipe::symmetric {

namespace {

constexpr size_t kLine = 64;  // bytes of a cache line: one per signal
constexpr size_t kPage = 4096;

size_t whole_pages(size_t bytes) {
    return (bytes + kPage - 1) / kPage * kPage;
}

/// Bytes of one member: its signals, then its buffer.
size_t signal_bytes(const Sizes& sizes) {
    return whole_pages(static_cast<size_t>(sizes.signals) * kLine);
}
size_t member_bytes(const Sizes& sizes) {
    return signal_bytes(sizes) + whole_pages(static_cast<size_t>(sizes.bytes));
}

class SharedPeers final : public Peers {
public:
    SharedPeers(const Sizes& sizes, int self, std::shared_ptr<void> owner, std::byte* memory)
        : sizes_(sizes), self_(self), owner_(std::move(owner)), memory_(memory) {}

    [[nodiscard]] std::span<std::byte> own() override {
        return {buffer(self_), static_cast<size_t>(sizes_.bytes)};
    }
    void push(int member, const Rows<const std::byte>& from, const TilePlace& to,
              int number) override {
        copy_rows(from, rows_at(buffer(member), to));
        if (number == SymmetricMemory::kNoSignal) return;
        signal(member, number).fetch_add(1, std::memory_order_acq_rel);
    }
    void start_pull(int member, const TilePlace& from, const Rows<std::byte>& to) override {
        copy_rows(rows_at<const std::byte>(buffer(member), from), to);
    }
    [[nodiscard]] bool pulled() override { return true; }
    [[nodiscard]] bool may_be_on_the_way(int) const override { return false; }
    [[nodiscard]] uint64_t raised(int number) const override {
        return signal(self_, number).load(std::memory_order_acquire);
    }

private:
    [[nodiscard]] std::byte* member(int number) const {
        return memory_ + static_cast<size_t>(number) * member_bytes(sizes_);
    }
    [[nodiscard]] std::byte* buffer(int number) const {
        return member(number) + signal_bytes(sizes_);
    }
    /// Zeros are a signal that was never raised.
    [[nodiscard]] std::atomic_ref<uint64_t> signal(int of, int number) const {
        std::byte* const line = member(of) + static_cast<size_t>(number) * kLine;
        return std::atomic_ref(*std::launder(reinterpret_cast<uint64_t*>(line)));
    }
    static_assert(std::atomic_ref<uint64_t>::is_always_lock_free, "two processes share them");

    Sizes sizes_;
    int self_;
    std::shared_ptr<void> owner_;
    std::byte* memory_;
};

}  // namespace

void copy_rows(const Rows<const std::byte>& from, const Rows<std::byte>& to) {
    if (from.row_bytes == to.row_bytes) {
        for (int64_t row = 0; row < from.rows && from.row_bytes > 0; ++row) {
            std::memmove(to.first + row * to.stride, from.first + row * from.stride,
                         static_cast<size_t>(from.row_bytes));
        }
        return;
    }
    // One side is contiguous: a message, or memory of the caller.
    if (from.rows == 1) {
        for (int64_t row = 0; row < to.rows; ++row) {
            std::memmove(to.first + row * to.stride, from.first + row * to.row_bytes,
                         static_cast<size_t>(to.row_bytes));
        }
        return;
    }
    for (int64_t row = 0; row < from.rows; ++row) {
        std::memmove(to.first + row * from.row_bytes, from.first + row * from.stride,
                     static_cast<size_t>(from.row_bytes));
    }
}

size_t shared_bytes(const Sizes& sizes) {
    return static_cast<size_t>(sizes.members) * member_bytes(sizes) + kPage;
}

std::shared_ptr<void> make_shared_bytes(const Sizes& sizes) {
    constexpr std::align_val_t kAlignment{kPage};
    void* const memory = ::operator new(shared_bytes(sizes), kAlignment);
    std::shared_ptr<void> owner(memory, [](void* bytes) { ::operator delete(bytes, kAlignment); });
    std::memset(memory, 0, shared_bytes(sizes));
    return owner;
}

std::unique_ptr<Peers> make_shared_peers(const Sizes& sizes, int self, std::shared_ptr<void> owner,
                                         std::byte* memory) {
    return std::make_unique<SharedPeers>(sizes, self, std::move(owner), memory);
}

}  // namespace vocabpipe::symmetric
