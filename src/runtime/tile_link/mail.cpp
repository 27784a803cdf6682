// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/tile_link/mail.hpp"

#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace vocabpipe {

namespace {

/// FNV-1a, over the bytes of 64-bit numbers.
uint64_t hash_of(std::span<const int> ranks, int64_t opening) {
    uint64_t hash = 0xcbf29ce484222325u;
    const auto add = [&](uint64_t number) {
        for (int byte = 0; byte < 8; ++byte) {
            hash = (hash ^ (number >> (8 * byte) & 0xffu)) * 0x100000001b3u;
        }
    };
    for (const int rank : ranks) add(static_cast<uint64_t>(rank));
    add(static_cast<uint64_t>(opening));
    return hash;
}

}  // namespace

TileMail::TileMail(Transport& transport) : transport_(transport) {}

TileMail::~TileMail() {
    if (!peers_.empty()) transport_.cancel();  // labels are still expected
}

// --- lines ---------------------------------------------------------------------------------------

void TileMail::check_usable() const {
    if (!broken_) return;
    throw CommunicationError("rank " + std::to_string(transport_.rank()) +
                             ": an earlier operation of a tile link or of symmetric memory has "
                             "failed");
}

uint64_t TileMail::open(std::span<const int> ranks, MailLine& line) {
    check_usable();
    const uint64_t number = hash_of(ranks, openings_[{ranks.begin(), ranks.end()}]++);
    if (closed_.contains(number) || !lines_.emplace(number, &line).second) {
        throw UsageError(
            "tile link: two teams of ranks have the same number; give the ranks in "
            "another order");
    }
    for (const int rank : ranks) {
        if (rank == transport_.rank() || peers_.contains(rank)) continue;
        Peer& peer = peers_[rank];
        peer.ranks = {rank, transport_.rank()};
        expect(peer);
    }
    try {
        redeliver(number);
    } catch (...) {  // the line is not there yet for its owner
        close(number);
        throw;
    }
    return number;
}

void TileMail::close(uint64_t line) noexcept {
    for (const auto& [rank, peer] : peers_) {
        if (!broken_ && peer.in_body && !peer.keeps && peer.letter.line == line) cancel();
    }
    lines_.erase(line);
    kept_.erase(line);
    closed_.insert(line);
}

void TileMail::redeliver(uint64_t line) {
    const auto kept = kept_.find(line);
    if (kept == kept_.end()) return;
    std::erase_if(kept->second, [this](const Kept& one) { return deliver(one); });
    if (kept->second.empty()) kept_.erase(kept);
}

/// Returns whether the line has taken it.
bool TileMail::deliver(const Kept& kept) {
    MailLine& line = *lines_.at(kept.letter.line);
    const auto place = line.place(kept.rank, kept.letter);
    if (!place) return false;
    if (!kept.bytes.empty()) std::memcpy(place->data(), kept.bytes.data(), kept.bytes.size());
    line.arrived(kept.rank, kept.letter);
    return true;
}

// --- sending -------------------------------------------------------------------------------------

uint32_t TileMail::start(int rank, Sending sending) {
    check_usable();
    const uint32_t number = sends_.take();
    Sending& slot = sends_[number];
    slot = std::move(sending);
    if (!slot.asked_for) slot.bytes = slot.own;
    slot.letter.bytes = static_cast<int64_t>(slot.bytes.size());
    slot.ranks = {transport_.rank(), rank};
    const auto start = [&](std::span<const std::byte> bytes) {
        return transport_.start(
            {.what = Do::send, .channel = Channel::mail, .ranks = slot.ranks, .send = bytes});
    };
    slot.label = start(std::as_bytes(std::span(&slot.letter, 1)));
    slot.body = start(slot.bytes);
    peers_.at(rank).sending.push_back(number);
    return number;
}

uint32_t TileMail::send(int rank, const Letter& letter, std::span<const std::byte> bytes) {
    return start(rank, {.letter = letter, .own = {}, .bytes = bytes, .asked_for = true});
}

void TileMail::send(int rank, const Letter& letter, std::vector<std::byte> bytes) {
    (void)start(rank, {.letter = letter, .own = std::move(bytes), .bytes = {}});
}

bool TileMail::sent(uint32_t number) {
    if (!sends_[number].sent) return false;
    sends_.give_back(number);
    return true;
}

/// Letters of a pair leave in order, so only the first one is tested.
bool TileMail::advance_sends(Peer& peer) {
    bool moved = false;
    while (!peer.sending.empty()) {
        const uint32_t number = peer.sending.front();
        Sending& slot = sends_[number];
        if (!slot.label_sent) slot.label_sent = transport_.test(slot.label);
        if (!slot.label_sent || !transport_.test(slot.body)) break;
        slot.sent = true;
        slot.own = {};
        peer.sending.pop_front();
        if (!slot.asked_for) sends_.give_back(number);
        moved = true;
    }
    return moved;
}

// --- receiving -----------------------------------------------------------------------------------

void TileMail::expect(Peer& peer) {
    peer.in_body = false;
    peer.ticket = transport_.start({.what = Do::receive,
                                    .channel = Channel::mail,
                                    .ranks = peer.ranks,
                                    .receive = std::as_writable_bytes(std::span(&peer.letter, 1))});
}

void TileMail::begin_body(Peer& peer) {
    const auto line = lines_.find(peer.letter.line);
    std::optional<std::span<std::byte>> place;
    if (line != lines_.end()) place = line->second->place(peer.ranks[0], peer.letter);
    peer.keeps = !place;
    if (!place) {
        peer.kept.resize(static_cast<size_t>(peer.letter.bytes));
        place = peer.kept;
    }
    peer.in_body = true;
    peer.ticket = transport_.start(
        {.what = Do::receive, .channel = Channel::mail, .ranks = peer.ranks, .receive = *place});
}

void TileMail::end_body(Peer& peer) {
    const uint64_t number = peer.letter.line;
    const auto line = lines_.find(number);
    if (!peer.keeps) {
        line->second->arrived(peer.ranks[0], peer.letter);
    } else if (!closed_.contains(number)) {
        kept_[number].push_back({peer.ranks[0], peer.letter, std::move(peer.kept)});
        peer.kept = {};
        if (line != lines_.end()) redeliver(number);  // opened, or ready, meanwhile
    }
    expect(peer);
}

bool TileMail::advance_receives(Peer& peer) {
    bool moved = false;
    while (transport_.test(peer.ticket)) {
        moved = true;
        if (peer.in_body) {
            end_body(peer);
        } else {
            begin_body(peer);
        }
    }
    return moved;
}

bool TileMail::advance() {
    if (advancing_) return false;  // a poll of a poll
    check_usable();
    advancing_ = true;
    const struct Leave {
        bool& flag;
        ~Leave() { flag = false; }
    } leave{advancing_};
    bool moved = false;
    try {
        for (auto& [rank, peer] : peers_) {
            if (advance_sends(peer)) moved = true;
            if (advance_receives(peer)) moved = true;
        }
    } catch (...) {
        cancel();
        throw;
    }
    return moved;
}

bool TileMail::idle(std::span<const int> ranks) const {
    return std::all_of(ranks.begin(), ranks.end(), [this](int rank) {
        const auto peer = peers_.find(rank);
        return peer == peers_.end() || peer->second.sending.empty();
    });
}

void TileMail::cancel() noexcept {
    broken_ = true;
    transport_.cancel();
}

}  // namespace vocabpipe
