// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/tile_link/blocking_link.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

class BlockingExchange final : public TileLink::Exchange {
public:
    /// `coming`: pieces of every member.
    BlockingExchange(const TileLink& link, TileLink::Operation inner, std::vector<int> coming)
        : link_(link),
          inner_(std::move(inner)),
          coming_(std::move(coming)),
          held_(coming_.size(), 0) {}

    void release(int member, int pieces) override {
        int& held = held_.at(static_cast<size_t>(member));
        held = std::max(held, pieces);
    }

    [[nodiscard]] int wait(int member, int pieces) override {
        release_held();
        for (int i = 1; i < link_.size(); ++i) {
            const int other = link_.from(i);
            const int there = std::min(pieces, coming_[static_cast<size_t>(other)]);
            if (there > 0) (void)inner_.wait(other, there);
        }
        return inner_.wait(member, pieces);
    }

    [[nodiscard]] bool test(int member, int pieces) override {
        (void)wait(member, pieces);
        return true;
    }

    void finish() override {
        release_held();
        inner_.finish();
    }

private:
    /// In the order that links of devices with streams want.
    void release_held() {
        for (int i = 0; i < link_.size(); ++i) {
            const int member = link_.to(i);
            int& held = held_[static_cast<size_t>(member)];
            if (held > 0) inner_.release(member, std::exchange(held, 0));
        }
    }

    const TileLink& link_;
    TileLink::Operation inner_;
    std::vector<int> coming_;
    std::vector<int> held_;  ///< [member] pieces that were released, and have not left
};

class BlockingLink final : public TileLink {
public:
    explicit BlockingLink(std::unique_ptr<TileLink> inner) : inner_(std::move(inner)) {}

    [[nodiscard]] int rank() const override { return inner_->rank(); }
    [[nodiscard]] int size() const override { return inner_->size(); }
    void poll() override { inner_->poll(); }
    [[nodiscard]] Operation all_to_all(std::span<const Outgoing> send,
                                       std::span<const Incoming> receive, Name name,
                                       Order order) override {
        std::vector<int> coming;
        for (const Incoming& from : receive) coming.push_back(static_cast<int>(from.ends.size()));
        return Operation(std::make_unique<BlockingExchange>(
            *inner_, inner_->all_to_all(send, receive, name, order), std::move(coming)));
    }

private:
    std::unique_ptr<TileLink> inner_;
};

}  // namespace

std::unique_ptr<TileLink> make_blocking_link(std::unique_ptr<TileLink> inner) {
    return std::make_unique<BlockingLink>(std::move(inner));
}

}  // namespace vocabpipe
