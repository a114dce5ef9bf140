-- PUT 100 bytes under one of 100 keys.
local value = string.rep("v", 100)
request = function()
  return wrk.format("PUT", "/v0/entity?id=key" .. math.random(0, 99), nil, value)
end
