// SPDX-License-Identifier: Apache-2.0
#include "src/train/run/grace_note.hpp"

#include <gtest/gtest.h>

namespace vocabpipe::testing {
namespace {

TEST(GraceNote, SaysAfterTheSecondStepWhatToExportWhereASaveTakesHalfOfTheGracePeriod) {
    // 1 s of the longest pass, 4e9 bytes in 20 s: one second more is exported.
    EXPECT_EQ(GraceNote(2).of_step(1, 4'000'000'000),
              "note: a save writes 3.7 GiB, in 20.0 s at 200 MB/s, after a pass of up to 1.0 s;\n"
              "  mpirun kills 2.0 s after Ctrl-C, so a run that is told to end may save\n"
              "  nothing; export OMPI_MCA_odls_base_sigkill_timeout=22");
    EXPECT_EQ(GraceNote(44).of_step(1, 4'000'000'000), "") << "what it asks for is enough";
    EXPECT_EQ(GraceNote(2).of_step(0.9, 10'000'000), "");
    EXPECT_EQ(GraceNote(0.5, true).of_step(0.1, 100'000'000),
              "note: a save writes 0.1 GiB, in 0.5 s at 200 MB/s, after a pass of up to 0.1 s;\n"
              "  mpirun kills 0.5 s after SIGTERM, so a run that is told to end may save\n"
              "  nothing; send SIGUSR1 to mpirun instead, which waits");
    EXPECT_EQ(GraceNote({}).of_step(100, 4'000'000'000), "") << "nobody kills";
}

TEST(GraceNote, SaysItOnceAndAtTheFirstSaveThatWasSlow) {
    GraceNote note(2);
    EXPECT_EQ(note.of_save(0.1, 1 << 30, 0.5), "");
    EXPECT_NE(note.of_save(0.1, 1 << 30, 1.5).find("a save of 1.0 GiB took 1.5 s; mpirun kills"),
              std::string::npos);
    EXPECT_EQ(note.of_save(0.1, 1 << 30, 1.5), "");
    EXPECT_EQ(note.of_step(9, 1 << 30), "");
}

}  // namespace
}  // namespace vocabpipe::testing
