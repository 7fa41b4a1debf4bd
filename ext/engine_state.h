// What an engine holds; shared by engine.cpp and the Python binding, which keeps a region alive while it is viewed.
#pragma once
#include <memory>

#include "engine.h"
#include "kernel.h"
#include "pool.h"
#include "registry.h"

struct ptl_engine {
  ptl::Pool pool;
  const ptl::Build* build;
  int threads;
  std::shared_ptr<char> memory[ptl::kRegions];
  ptl::Region regions[ptl::kRegions];
  std::shared_ptr<char> thread_scratch, shared_scratch;
  char error[320];
};
