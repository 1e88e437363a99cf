// SPDX-License-Identifier: Apache-2.0
// libraries.h for tests, and what these include besides. Nothing of ours.
#include "tools/precompiled/libraries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
