-- PUT 100 bytes under one of 100 keys, or GET one.
local value = string.rep("v", 100)
request = function()
  local path = "/v0/entity?id=key" .. math.random(0, 99)
  if math.random(2) == 1 then
    return wrk.format("GET", path)
  end
  return wrk.format("PUT", path, nil, value)
end
