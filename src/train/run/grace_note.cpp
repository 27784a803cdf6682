// SPDX-License-Identifier: Apache-2.0
#include "src/train/run/grace_note.hpp"

#include "src/support/text_layout.hpp"

#include <array>
#include <cmath>
#include <cstdio>

namespace vocabpipe {

namespace {

/// Write rate of a hard disk, assumed until a save was measured.
constexpr double kBytesPerSecond = 200e6;

}  // namespace

std::string GraceNote::of_step(double longest_pass_seconds, uint64_t bytes) {
    const double writing = static_cast<double>(bytes) / kBytesPerSecond;
    std::array<char, 128> text;
    std::snprintf(text.data(), text.size(),
                  "a save writes %.1f GiB, in %.1f s at 200 MB/s, after a pass of up to %.1f s",
                  static_cast<double>(bytes) / (1 << 30), writing, longest_pass_seconds);
    return say(text.data(), longest_pass_seconds + writing);
}

std::string GraceNote::of_save(double longest_pass_seconds, uint64_t bytes, double seconds) {
    std::array<char, 128> text;
    std::snprintf(text.data(), text.size(), "a save of %.1f GiB took %.1f s",
                  static_cast<double>(bytes) / (1 << 30), seconds);
    return say(text.data(), longest_pass_seconds + seconds);
}

/// Only half of the grace period counts: mpirun sends its first signal at once and SIGTERM after
/// half of it; a batch system begins with SIGTERM, which leaves only the second half.
std::string GraceNote::say(const std::string& what, double seconds) {
    if (said_ || !grace_seconds_ || seconds <= *grace_seconds_ / 2) return "";
    said_ = true;
    std::array<char, 128> text;
    std::snprintf(text.data(), text.size(),
                  "; mpirun kills %.1f s after %s, so a run that is told to end may save nothing; ",
                  *grace_seconds_, fixed_ ? "SIGTERM" : "Ctrl-C");
    const std::string enough = std::to_string(static_cast<int>(std::ceil(seconds)) + 1);
    return wrap_text("note: " + what + text.data() +
                         (fixed_ ? "send SIGUSR1 to mpirun instead, which waits"
                                 : "export OMPI_MCA_odls_base_sigkill_timeout=" + enough),
                     2);
}

}  // namespace vocabpipe
