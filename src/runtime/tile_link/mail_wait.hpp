// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/tile_link/mail.hpp"
#include "src/runtime/wait.hpp"
#include "vocabpipe/error.hpp"

#include <cstdint>
#include <functional>

namespace vocabpipe {

/// What a wait has found.
enum class Found : uint8_t { nothing, something, all };

/// Waits until `look` finds all. Meanwhile the mail advances and `poll` is called, so that peers
/// are served by a rank that waits. Ends by the deadline without progress with a
/// CommunicationError that begins with `text`, as do errors of the transport.
template <typename Look, typename Text>
void wait_by_mail(TileMail& mail, const WaitOptions& wait, const std::function<void()>& poll,
                  Look&& look, Text&& text) {
    IdleWait idle(wait);
    while (true) {
        const Found found = look();
        if (found == Found::all) return;
        bool moved = found == Found::something;
        try {
            if (mail.advance()) moved = true;
            if (!moved) mail.transport().check_health();
        } catch (const CommunicationError& error) {
            throw CommunicationError(text() + "; " + error.what());
        }
        if (moved) {
            idle.reset();
            continue;
        }
        if (poll) poll();
        const IdleWait::Verdict verdict = idle.pause();
        if (verdict == IdleWait::Verdict::go_on) continue;
        throw CommunicationError(text() + idle.outcome(verdict));
    }
}

}  // namespace vocabpipe
