-- Differs: it reads nothing where no worker has died lately; the function is in functions/.
SELECT queue, message_id, generation FROM {ops}.release_messages($1, $2)
